// Implementation of position_call.h.
#include "gangway/device/pjrt/position_call.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xla/ffi/api/ffi.h"

#include "gangway/base/mutex.h"

namespace gangway::device {
namespace {

namespace ffi = ::xla::ffi;

class Positions {
 public:
  void Set(int32_t launch_id, int device, std::optional<LogicalPosition> position)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (position) {
      by_launch_[{launch_id, device}] = *position;
    } else {
      by_launch_.erase({launch_id, device});
    }
  }

  std::optional<LogicalPosition> Find(int64_t launch_id, int device) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto found = by_launch_.find({launch_id, device});
    if (found == by_launch_.end()) return std::nullopt;
    return found->second;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<int64_t, int>, LogicalPosition> by_launch_ GANGWAY_GUARDED_BY(mutex_);
};

Positions& AllPositions() {
  static auto* const positions = new Positions();
  return *positions;
}

ffi::Error TellPosition(ffi::RunId run, int32_t device, ffi::Result<ffi::BufferR0<ffi::U32>> result,
                        bool replica) {
  const std::optional<LogicalPosition> position = AllPositions().Find(run.run_id, device);
  if (!position) {
    return {ffi::ErrorCode::kInternal,
            absl::StrCat("launch ", run.run_id, " has no position on device ", device)};
  }
  const uint32_t value = replica ? position->replica : position->partition;
  std::memcpy(result->untyped_data(), &value, sizeof(value));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(PositionHandler, TellPosition,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Ret<ffi::BufferR0<ffi::U32>>()
                                  .Attr<bool>("replica"));

}  // namespace

void SetPosition(int32_t launch_id, int device, std::optional<LogicalPosition> position) {
  AllPositions().Set(launch_id, device, position);
}

bool MayAskPosition(std::string_view serialized) {
  return serialized.find(kPositionCallTarget) != std::string_view::npos;
}

HandlerGroup PositionHandlers() {
  return {"over several workers",
          {{std::string(kPositionCallTarget), reinterpret_cast<void*>(PositionHandler)}}};
}

}  // namespace gangway::device
