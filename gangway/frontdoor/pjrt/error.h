// Errors of the C API, and the guard around every function of its table: a caller's mistake is an error that names the
// function, never undefined behaviour, as far as the API lets one detect it. An error of the cluster names none.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_ERROR_H_
#define GANGWAY_FRONTDOOR_PJRT_ERROR_H_

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "pjrt_c_api.h"

#include "gangway/base/failure_record.h"

struct PJRT_Error {
  absl::StatusCode code;
  std::string message;
};

namespace gangway::pjrt {

// Null for success. The caller frees it with PJRT_Error_Destroy.
PJRT_Error* ToError(const absl::Status& status);

// The reverse, for errors that a caller hands in.
absl::Status FromCode(PJRT_Error_Code code, std::string_view message);

void DestroyError(PJRT_Error_Destroy_Args* args);
void ErrorMessage(PJRT_Error_Message_Args* args);
absl::Status ErrorCode(PJRT_Error_GetCode_Args& args);

// INVALID_ARGUMENT naming what is missing.
inline absl::Status Need(const void* pointer, const char* what) {
  if (pointer != nullptr) [[likely]]
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is null"));
}

// INVALID_ARGUMENT: a struct inside of the arguments ends before `size`, its part that is read.
inline absl::Status NeedSize(size_t struct_size, size_t size, const char* what) {
  if (struct_size >= size) [[likely]]
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has an older form: ", struct_size,
                                                 " bytes, expected ", size, " or more"));
}

// Calls `function` with the caller's arguments, if they are at least as large as version 0.81 of the API has them. A
// newer caller's are larger; what it says in the rest is not read.
template <typename Args, typename Function>
PJRT_Error* Guard(const char* name, size_t size, Args* args, Function function) {
  if (args == nullptr || args->struct_size < size) [[unlikely]] {
    return ToError(absl::InvalidArgumentError(absl::StrCat(
        name, ": its arguments ", args == nullptr ? "are null" : "have an older form", ": ",
        args == nullptr ? 0 : args->struct_size, " bytes, expected ", size, " or more")));
  }
  absl::Status status;
  try {
    status = function(*args);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("this process has no memory left");
  } catch (const std::length_error&) {  // of a size that no memory has
    status = absl::InvalidArgumentError("a size in its arguments is impossible");
  }
  if (status.ok()) [[likely]]
    return nullptr;
  // A user who wrote np.asarray(x) knows no function of this API: what the cluster says is told as it is.
  if (status.GetPayload(kFailureRecord)) return ToError(status);
  return ToError(absl::Status(status.code(), absl::StrCat(name, ": ", status.message())));
}

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_ERROR_H_
