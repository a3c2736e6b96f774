// Which sessions hold how many bytes of each device: the ledger, and what was found wrong in it. A credit of more than
// was charged has found a bug of ours in one session's sums. That session's books are then counted again, from the
// records that later credits will follow, and the session ends; the others go on. Pure accounting; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_BOOKS_H_
#define GANGWAY_SCHEDULER_CORE_BOOKS_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/ledger.h"

namespace gangway::scheduler {

class Books {
 public:
  // A credit of more than the session's books held.
  struct Break {
    IslandDevice device;
    uint64_t bytes = 0;
    uint64_t held_bytes = 0;
  };

  Books(size_t device_count, uint64_t budget_bytes) : ledger_(device_count, budget_bytes) {}

  const Ledger& ledger() const { return ledger_; }

  void SetOwnBudget(IslandDevice device, uint64_t bytes) {
    ledger_.SetOwnBudget(device, bytes);
    freed_ = true;  // it may have more than before
  }

  // These bytes on each of the devices.
  void Charge(SessionId session, std::span<const IslandDevice> devices, uint64_t bytes) {
    ledger_.Charge(session, devices, bytes);
  }

  // Likewise. What the session's books do not cover changes nothing, and is found by TakeBroken().
  void Credit(SessionId session, std::span<const IslandDevice> devices, uint64_t bytes) {
    freed_ |= bytes != 0 && !devices.empty();
    const auto device = ledger_.Credit(session, devices, bytes);
    if (device) broken_.emplace(session, Break{*device, bytes, ledger_.HeldBy(session, *device)});
  }

  // The first break of each session whose books broke since the last call. They are to be set right.
  std::map<SessionId, Break> TakeBroken() { return std::exchange(broken_, {}); }
  void SetRight(SessionId session, Ledger::DeviceBytes books) {
    ledger_.SetRight(session, std::move(books));
    freed_ = true;
  }

  // Whether what did not fit may fit now: bytes came back, or a node that was not to be overtaken waits no longer.
  bool freed() const { return freed_; }
  void NoteFreed() { freed_ = true; }
  bool TakeFreed() { return std::exchange(freed_, false); }

 private:
  friend struct IslandPeer;  // of tests: breaks books

  Ledger ledger_;
  std::map<SessionId, Break> broken_;
  bool freed_ = false;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_BOOKS_H_
