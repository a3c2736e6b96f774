// One loaded PJRT plugin: its function table, and the translation of its errors and events into
// ours. A plugin stays loaded until the process ends (XLA cannot be unloaded). Thread-safe after
// Load.
#ifndef GANGWAY_DEVICE_PJRT_PJRT_API_H_
#define GANGWAY_DEVICE_PJRT_PJRT_API_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pjrt_c_api.h"

#include "gangway/device/device.h"

namespace gangway::device {

// The text under which `error` travels through a plugin. XLA CPU replaces the code by INTERNAL and
// prefixes the text at every program that the error passes, so the code travels inside the text and
// TakeError takes it out again.
std::string MarkError(const absl::Status& error);

class PjrtApi {
 public:
  // Loads the plugin at `path`, or returns the one loaded before from there. `thread_pool_size` > 0
  // is put in the environment as NPROC first: XLA CPU sizes its pools by it once per process. Call
  // before other threads read the environment. Errors: NOT_FOUND (no such file), INVALID_ARGUMENT
  // (not a PJRT plugin), FAILED_PRECONDITION (another API version, functions missing, or another
  // pool size was set in this process before).
  static absl::StatusOr<const PjrtApi*> Load(const std::string& path, int thread_pool_size);

  const PJRT_Api* table() const { return table_; }
  std::string version() const;

  // The extension of that type, or null.
  const PJRT_Extension_Base* FindExtension(PJRT_Extension_Type type) const;

  // Calls one function of the table. `args` is zeroed by its maker; the struct size is filled in
  // here.
  template <typename Args>
  absl::Status Call(PJRT_Error* (*PJRT_Api::*function)(Args*), Args& args) const {
    args.struct_size = sizeof(Args);
    return TakeError((table_->*function)(&args));
  }

  // Turns an error of the plugin (null = OK) into a status and frees it. An error made by MarkError
  // comes out with the code and text that it had.
  absl::Status TakeError(PJRT_Error* error) const;

  // Runs `callback` with the event's outcome once, then frees the event. Takes the event.
  void OnEvent(PJRT_Event* event, StatusCallback callback) const;

 private:
  explicit PjrtApi(const PJRT_Api* table) : table_(table) {}

  const PJRT_Api* const table_;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_PJRT_API_H_
