// The gangs with collectives that are queued or run on a device, as others see it: up to which one the device has left
// them all (Region::left), so that no sender waits for it to read what it never will, and which one has failed last.
//
// To enter and to leave a gang takes no memory and no lock of another device, and it makes a system call only if a
// member of the gang sleeps for that, or if more devices of this host than can be looked at are members. A member that
// waits for a gang which this device never had finds out when it looks again (Waiter).
//
// Thread-safe.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/peer.h"
#include "gangway/collective/execution/peer_devices.h"

namespace gangway::collective {

class GangQueue {
 public:
  // `region`: of the device with this number (PeerNumber), and outlives this.
  GangQueue(Region& region, uint32_t number) : region_(region), number_(number) {}
  GangQueue(const GangQueue&) = delete;
  GangQueue& operator=(const GangQueue&) = delete;

  // A gang is queued on the device, in the order of releases; and has ended there, or never will begin.
  enum class Ending {
    kComplete,  // well, and it has read all messages to it
    kUnread,  // well, but perhaps it has not read all: others are told, so that no sender waits for it
    kEarly,  // it has failed, or did not begin: others are told
  };
  void Enter(uint64_t order) GANGWAY_EXCLUDES(mutex_);
  // The devices of the gang: those that may sleep until this one leaves it. Of a gang without this, all are woken.
  void SetMembers(uint64_t order, std::shared_ptr<const PeerDevices> members)
      GANGWAY_EXCLUDES(mutex_);
  // What other workers are to be told of it; always something if it is not kComplete.
  std::optional<LeftUpTo> Leave(uint64_t order, Ending ending) GANGWAY_EXCLUDES(mutex_);
  // The gang has failed, although the device may have ended it well. What other workers are to be told.
  LeftUpTo FailLate(uint64_t order) GANGWAY_EXCLUDES(mutex_);

 private:
  struct Entered {
    uint64_t order = 0;
    std::shared_ptr<const PeerDevices> members;
  };

  std::vector<Entered>::iterator Find(uint64_t order) GANGWAY_REQUIRES(mutex_);
  // The members of a gang that has been entered. Null: they are not known.
  std::shared_ptr<const PeerDevices> Take(uint64_t order) GANGWAY_REQUIRES(mutex_);
  // True: that is news to others.
  bool SetLeft(uint64_t order) GANGWAY_REQUIRES(mutex_);
  void WakeSenders(const PeerDevices* members) GANGWAY_REQUIRES(mutex_);
  // Others wait for the reason of this gang's failure, and not only for what this device does in it.
  void SetFailed(uint64_t order) GANGWAY_REQUIRES(mutex_);

  Region& region_;
  const uint32_t number_;
  Mutex mutex_;
  // Queued or running from first_ on, in the order of releases. It keeps its memory.
  std::vector<Entered> gangs_ GANGWAY_GUARDED_BY(mutex_);
  size_t first_ GANGWAY_GUARDED_BY(mutex_) = 0;
  // A gang was left before an earlier one, so its members sleep until that one is left, too.
  bool left_early_ GANGWAY_GUARDED_BY(mutex_) = false;
  uint64_t last_gang_ GANGWAY_GUARDED_BY(mutex_) = 0;
  // The last gang of whose end others are to be told, once the earlier ones that are under way have ended. 0: none.
  uint64_t to_tell_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_GANG_QUEUE_H_
