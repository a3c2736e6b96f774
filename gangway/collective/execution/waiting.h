// What a member waits for, as the scheduler is told of it and asks about it.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_WAITING_H_
#define GANGWAY_COLLECTIVE_EXECUTION_WAITING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "gangway/base/clock.h"
#include "gangway/collective/execution/arena.h"

namespace gangway::collective {

// What a member waits for another device to do.
struct Awaited {
  Deed deed = Deed::kWritten;
  MessageKey key;         // kWritten: of the message. kRead: the message's gang is all that counts
  uint64_t sequence = 0;  // kRead: of the message
};

// A member that sleeps until another one has come as far.
struct Waiting {
  uint64_t gang = 0;         // its ordinal
  uint64_t wait = 0;         // larger than those of the device's earlier waits
  uint32_t number = 0;       // of the collective in its plan
  uint32_t round = 0;        // calls of this collective by the member before this one
  std::string collective;    // PlannedCollective::Name
  std::string peer;          // the worker of the other member
  uint32_t peer_worker = 0;  // its index
  uint32_t peer_device = 0;
  bool is_mirrored = false;        // the other worker shares no memory with this one
  std::optional<Awaited> awaited;  // nothing: the reason of a failure
  Clock::time_point since;
};

// Of a device that may be one of several that wait for each other.
struct WaitQuestion {
  uint64_t wait = 0;
  // A deed of this device that the one with the number `by` awaits.
  struct Owed {
    Awaited deed;
    uint32_t by = 0;
  };
  std::optional<Owed> owed;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_WAITING_H_
