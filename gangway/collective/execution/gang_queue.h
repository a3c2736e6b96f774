// The gangs with collectives that are queued or run on a device, as others see it: up to which one the device has left
// them all (Region::left), so that no sender waits for it to read what it never will, and which one has failed last.
//
// Thread-safe.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_

#include <cstdint>
#include <optional>
#include <set>

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/peer.h"

namespace gangway::collective {

class GangQueue {
 public:
  // `region`: of the device, which outlives this.
  GangQueue(Region& region, uint32_t device) : region_(region), device_(device) {}
  GangQueue(const GangQueue&) = delete;
  GangQueue& operator=(const GangQueue&) = delete;

  // A gang is queued on the device, in the order of releases; and has ended there, or never will begin.
  enum class Ending {
    kComplete,  // well, and it has read all messages to it
    kUnread,  // well, but perhaps it has not read all: others are told, so that no sender waits for it
    kEarly,  // it has failed, or did not begin: others are told
  };
  void Enter(uint64_t order) GANGWAY_EXCLUDES(mutex_);
  // What other workers are to be told of it; always something if it is not kComplete.
  std::optional<LeftUpTo> Leave(uint64_t order, Ending ending) GANGWAY_EXCLUDES(mutex_);
  // The gang has failed, although the device may have ended it well. What other workers are to be told.
  LeftUpTo FailLate(uint64_t order) GANGWAY_EXCLUDES(mutex_);

 private:
  void SetLeft(uint64_t order) GANGWAY_REQUIRES(mutex_);
  // Others wait for the reason of this gang's failure, and not only for what this device does in it.
  void SetFailed(uint64_t order) GANGWAY_REQUIRES(mutex_);

  Region& region_;
  const uint32_t device_;
  Mutex mutex_;
  std::set<uint64_t> gangs_ GANGWAY_GUARDED_BY(mutex_);  // queued or running, by order position
  uint64_t last_gang_ GANGWAY_GUARDED_BY(mutex_) = 0;
  // The last gang of whose end others are to be told, once the earlier ones that are under way have ended. 0: none.
  uint64_t to_tell_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_
