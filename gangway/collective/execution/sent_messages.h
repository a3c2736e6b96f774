// What a device's slots hold, which it keeps from launch to launch: a slot is written again only when all that read its
// message have done so, or never will.
//
// Threading: the member that runs on the device; launches of one device do not overlap.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_SENT_MESSAGES_H_
#define GANGWAY_COLLECTIVE_EXECUTION_SENT_MESSAGES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "gangway/base/random.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/peer_devices.h"
#include "gangway/collective/execution/plan.h"

namespace gangway::collective {

// Whom a message is for: members on the sender's own worker may read its buffers instead (shown.h).
enum class Audience { kAll, kOtherWorkers };

struct SentMessage {
  uint64_t sequence = 0;
  PositionList readers;
  Audience audience = Audience::kAll;
  // Of its launch, which has perhaps ended. No devices: nothing is in the slot.
  uint64_t gang = 0;  // its order position
  std::shared_ptr<const PeerDevices> devices;
  std::shared_ptr<const std::atomic<bool>> is_aborted;
};

class SentMessages {
 public:
  // Of the last message, whose number in the first process of a device is random (arena.h).
  uint64_t last() const { return last_; }
  uint64_t next() const { return last_ + 1; }
  // What is in the slot of the next message.
  SentMessage& before_next() { return by_slot_[next() % kSlots]; }
  // The next message has been sent.
  void Add(SentMessage message) {
    ++last_;
    by_slot_[last_ % kSlots] = std::move(message);
  }

 private:
  uint64_t last_ = RandomBits() >> 2 | 1;
  std::array<SentMessage, kSlots> by_slot_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_SENT_MESSAGES_H_
