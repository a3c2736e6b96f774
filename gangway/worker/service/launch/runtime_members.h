// The members of a gang with the device runtime's own collectives: which of them have entered their devices, and the
// first that failed, for the gang watch (gang_watch.h). Of other gangs nothing is recorded, so it has no members.
//
// Threading: one thread at a time records for a member, and any thread looks.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_RUNTIME_MEMBERS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_RUNTIME_MEMBERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gangway/worker/service/device/in_flight.h"

namespace gangway::worker {

class RuntimeMembers {
 public:
  explicit RuntimeMembers(size_t members) : members_(members) {}

  size_t size() const { return members_.size(); }
  // The member's execute has begun among `executes`, those of its device; and has ended, or never will begin there.
  void Enter(size_t member, const InFlight& executes) {
    if (!members_.empty()) members_[member].begun_before = executes.begun() - 1;
  }
  void Leave(size_t member) {
    if (!members_.empty()) members_[member].begun_before = kOutside;
  }
  // Whether the member waits for nothing but its gang: all that entered its device before it has ended.
  bool IsStanding(size_t member, const InFlight& executes) const {
    const uint64_t before = members_[member].begun_before;
    return before != kOutside && executes.ended() >= before;
  }

  // A member on `device` has failed. True: it is the first one, and another member may wait for it.
  [[nodiscard]] bool NoteFailed(int device) {
    int none = kNone;
    return members_.size() > 1 && failed_device_.compare_exchange_strong(none, device);
  }
  // Of the first member that failed, after NoteFailed.
  int failed_device() const { return failed_device_; }

 private:
  static constexpr uint64_t kOutside = UINT64_MAX;
  static constexpr int kNone = -1;
  struct Member {
    std::atomic<uint64_t> begun_before = kOutside;  // executes of its device, when it entered
  };
  std::vector<Member> members_;  // by position
  std::atomic<int> failed_device_ = kNone;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_RUNTIME_MEMBERS_H_
