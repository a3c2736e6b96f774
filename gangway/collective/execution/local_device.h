// A device of this worker, and what it keeps from launch to launch: its region, the gangs that are queued on it, what
// its slots hold, and what it has read and not yet said.
//
// Threading: what the member that runs here uses is for its thread; launches of one device do not overlap. All else
// from any thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_LOCAL_DEVICE_H_
#define GANGWAY_COLLECTIVE_EXECUTION_LOCAL_DEVICE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "gangway/collective/execution/arena.h"
#include "gangway/collective/execution/gang_queue.h"
#include "gangway/collective/execution/peer.h"
#include "gangway/collective/execution/sent_messages.h"
#include "gangway/collective/execution/sleep_record.h"
#include "gangway/collective/execution/unsaid_reads.h"
#include "gangway/collective/execution/waiting.h"

namespace gangway::collective {

class LocalDevice {
 public:
  // `on_long_wait`: a member has waited here for kLongWait; once for each wait, with the gang's ordinal, on the
  // member's thread.
  LocalDevice(std::shared_ptr<Arena> arena, uint32_t worker, uint32_t device,
              std::shared_ptr<const Couriers> couriers,
              std::function<void(uint64_t gang)> on_long_wait = nullptr);
  static constexpr std::chrono::milliseconds kLongWait{250};

  using Ending = GangQueue::Ending;
  // A gang is queued on the device, in the order of releases; and has ended there, or never will begin.
  void Enter(uint64_t order) { gangs_.Enter(order); }
  void Leave(uint64_t order, Ending ending);
  // No gang will begin at this order position on these devices of one worker; null: none of them. Other workers hear it
  // once for all devices.
  static void Skip(std::span<const std::shared_ptr<LocalDevice>> devices, uint64_t order);
  // What the member that runs here sleeps for, if it does.
  std::optional<Waiting> waiting() const { return sleep_.waiting(); }
  // As SleepRecord.
  void Ask(const WaitQuestion& question, std::function<void()> held) {
    sleep_.Ask(question, std::move(held));
  }
  // How many sleeps missed their wake: they ended at their limit, and what they waited for had come before. Call it
  // only while no member runs.
  uint32_t overslept() const { return overslept_; }

  // For the member that runs here.
  uint32_t index() const { return index_; }    // on this worker
  uint32_t number() const { return number_; }  // in the island
  Arena& arena() { return *arena_; }
  Region& region() { return arena_->own(index_); }
  Shown& shown() { return arena_->shown(index_); }
  SentMessages& sent() { return sent_; }
  UnsaidReads& reads() { return reads_; }
  SleepRecord& sleep_record() { return sleep_; }
  // The devices that meet this one in a gang that is queued here.
  void SetMembers(uint64_t order, std::shared_ptr<const PeerDevices> members) {
    gangs_.SetMembers(order, std::move(members));
  }
  void Pulse() { region().pulse.fetch_add(1, std::memory_order_seq_cst); }
  // A gang that this device may have ended well has failed: what it sent is written over after this. Others wait for
  // the reason of the failure, and not only for what this device does in it.
  void FailLate(uint64_t order);
  void NoteLongWait(uint64_t gang) const {
    if (on_long_wait_ != nullptr) on_long_wait_(gang);
  }
  void NoteOverslept() { ++overslept_; }
  // The number of the device whose message it last slept for.
  uint32_t slept_for() const { return slept_for_; }
  void SetSleptFor(uint32_t number) { slept_for_ = number; }

 private:
  const std::shared_ptr<Arena> arena_;
  const uint32_t number_;
  const uint32_t index_;
  const std::shared_ptr<const Couriers> couriers_;
  const std::function<void(uint64_t gang)> on_long_wait_;
  GangQueue gangs_;
  SleepRecord sleep_;
  UnsaidReads reads_;
  SentMessages sent_;
  uint32_t overslept_ = 0;
  uint32_t slept_for_ = ~uint32_t{0};
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_LOCAL_DEVICE_H_
