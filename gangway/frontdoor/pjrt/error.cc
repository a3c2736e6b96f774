// Implementation of error.h.
#include "gangway/frontdoor/pjrt/error.h"

namespace gangway::pjrt {

PJRT_Error* ToError(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return new PJRT_Error{status.code(), std::string(status.message())};
}

// The numbers of both are those of google.rpc.Code.
absl::Status FromCode(PJRT_Error_Code code, std::string_view message) {
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::string_view(message.data(), message.size()));
}

void DestroyError(PJRT_Error_Destroy_Args* args) {
  if (args == nullptr || args->struct_size < PJRT_Error_Destroy_Args_STRUCT_SIZE) return;
  delete args->error;
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  if (args == nullptr || args->struct_size < PJRT_Error_Message_Args_STRUCT_SIZE ||
      args->error == nullptr) {
    return;
  }
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

absl::Status ErrorCode(PJRT_Error_GetCode_Args& args) {
  if (absl::Status there = Need(args.error, "the error"); !there.ok()) return there;
  args.code = static_cast<PJRT_Error_Code>(args.error->code);
  return absl::OkStatus();
}

}  // namespace gangway::pjrt
