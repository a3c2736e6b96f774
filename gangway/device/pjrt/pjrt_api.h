// One loaded PJRT plugin: its function table, and the translation of its errors and events to
// statuses and callbacks. A plugin stays loaded until the process ends (XLA cannot be unloaded).
// Thread-safe after Load.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_API_H_
#define GANGWAY_DEVICE_PJRT_PJRT_API_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

#include "gangway/device/device.h"

namespace gangway::device {

// Encodes the code of `error` in its text. XLA CPU replaces the code by INTERNAL and prefixes the
// text at every program that the error passes; TakeError restores the original code and text.
std::string MarkError(const absl::Status& error);

class PjrtApi {
 public:
  // Loads the plugin at `path`, or returns it if it is already loaded. First sets NPROC in the
  // environment to `thread_pool_size`, if that is > 0: XLA CPU sizes its pools by it once per
  // process. Call before other threads read the environment. Errors: NOT_FOUND (no such file),
  // INVALID_ARGUMENT (not a PJRT plugin), FAILED_PRECONDITION (another API version, functions
  // missing, or this process already uses another pool size).
  static absl::StatusOr<const PjrtApi*> Load(const std::string& path, int thread_pool_size);

  const PJRT_Api* table() const { return table_; }
  std::string version() const;

  // The extension of that type, or null.
  const PJRT_Extension_Base* FindExtension(PJRT_Extension_Type type) const;

  // Calls one function of the table. The caller zeroes `args`; this sets its struct size.
  template <typename Args>
  absl::Status Call(PJRT_Error* (*PJRT_Api::*function)(Args*), Args& args) const {
    args.struct_size = sizeof(Args);
    return TakeError((table_->*function)(&args));
  }

  // Turns an error of the plugin (null = OK) into a status and frees it. An error with a text of
  // MarkError regains its original code and text.
  absl::Status TakeError(PJRT_Error* error) const;

  // Takes ownership of the event. Runs `callback` once with its outcome, and frees it.
  void OnEvent(PJRT_Event* event, StatusCallback callback) const;

 private:
  explicit PjrtApi(const PJRT_Api* table) : table_(table) {}

  const PJRT_Api* const table_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_API_H_
