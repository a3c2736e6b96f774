// The launches of programs over several devices that a client of the runtime has in flight. XLA CPU finds the members
// of a launch by its id alone: under one id, two programs mix their members or wait for one another forever, and id 0
// makes no launch of several members. So ids are checked before the runtime sees them. Thread-safe.
#ifndef GANGWAY_DEVICE_PJRT_LAUNCHES_IN_FLIGHT_H_
#define GANGWAY_DEVICE_PJRT_LAUNCHES_IN_FLIGHT_H_

#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"

namespace gangway::device {

class LaunchesInFlight {
 public:
  // A member of a launch of `program` is about to execute. INVALID_ARGUMENT: the id is 0. FAILED_PRECONDITION: another
  // program has it in flight, or an earlier launch of this one.
  absl::Status Begin(int32_t launch_id, const void* program, int device) GANGWAY_EXCLUDES(mutex_) {
    if (launch_id == 0) {
      return absl::InvalidArgumentError(
          "a program over several devices needs a launch id that is not 0, the same for all of its "
          "devices");
    }
    MutexLock lock(mutex_);
    Launch& launch = launches_[launch_id];
    if (launch.executing > 0 &&
        (launch.program != program || absl::c_linear_search(launch.devices, device))) {
      return absl::FailedPreconditionError(
          absl::StrCat("launch id ", launch_id,
                       " is in flight on this device or for another program: each launch "
                       "needs an id of its own until all of its devices have ended"));
    }
    launch.program = program;
    launch.devices.push_back(device);
    ++launch.executing;
    return absl::OkStatus();
  }

  // Of a member that began: it has ended, or the runtime did not take it.
  void End(int32_t launch_id) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto launch = launches_.find(launch_id);
    if (launch != launches_.end() && --launch->second.executing == 0) launches_.erase(launch);
  }

 private:
  struct Launch {
    const void* program = nullptr;
    std::vector<int> devices;  // that have begun
    int executing = 0;         // of them
  };

  Mutex mutex_;
  absl::flat_hash_map<int32_t, Launch> launches_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_LAUNCHES_IN_FLIGHT_H_
