// Implementation of waiter.h.
#include "gangway/collective/execution/waiter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::collective {
namespace {

constexpr int kLooks = 200;  // some microseconds
constexpr int kLooksWithYield = 50;
// A sleeping wait looks again for what has no pulse: the end of a peer, and an abort that came just before the sleep,
// or while it sleeps at a device that is not of its launch (a reader of an earlier launch's message).
constexpr std::chrono::milliseconds kSleepMax{100};
// For the reason of a failure to come once a peer is gone, and how often a member that waits for one looks.
constexpr std::chrono::milliseconds kReasonMax{1000};
constexpr std::chrono::milliseconds kLookMax{20};

}  // namespace

absl::Status Waiter::Await(const PeerDevice& device, const Awaited& awaited,
                           absl::FunctionRef<bool()> ready) {
  const bool may_look = has_met_ || !launch_->is_crowded_at_first();
  for (int i = 0; may_look && !launch_->is_crowded() && i < kLooks; ++i) {
    if (ready()) return absl::OkStatus();
    PauseCore();
  }
  for (int i = 0; may_look && i < kLooksWithYield; ++i) {
    if (ready()) return absl::OkStatus();
    if (launch_->is_aborted()) return launch_->reason();
    YieldCore();
  }
  if (ready()) return absl::OkStatus();
  return AwaitAsleep(device, awaited, ready);
}

absl::Status Waiter::AwaitAsleep(const PeerDevice& device, const Awaited& awaited,
                                 absl::FunctionRef<bool()> ready) {
  if (awaited.deed == Deed::kWritten) device_->SetSleptFor(device.number());
  return Asleep(device, awaited, [&] { return Sleep(device, awaited.deed, ready); });
}

absl::Status Waiter::Asleep(const PeerDevice& device, const std::optional<Awaited>& awaited,
                            absl::FunctionRef<absl::Status()> body) {
  device_->sleep_record().Begin({.launch = launch_,
                                 .number = number_,
                                 .round = round_,
                                 .device = device,
                                 .awaited = awaited});
  device_->reads().Say();
  absl::Status status = body();
  device_->sleep_record().End();
  return status;
}

absl::Status Waiter::Sleep(const PeerDevice& device, Deed deed, absl::FunctionRef<bool()> ready) {
  const Clock::time_point began = Clock::now();
  const FutexWord& pulse = device.region().pulse;
  std::atomic<uint32_t>& awaited = device_->region().awaited;
  bool is_woken = true, has_ended = false, is_long = false;
  while (true) {
    const uint32_t seen = pulse.load(std::memory_order_seq_cst);
    const bool is_asked = device_->sleep_record().is_asked();  // before it looks
    if (ready()) {
      if (!is_woken) device_->NoteOverslept();
      return absl::OkStatus();
    }
    if (launch_->is_aborted()) return launch_->reason();
    if (HasEndedWell(device)) {
      if (has_ended) {
        return absl::InvalidArgumentError(
            absl::StrCat("collective ", CollectiveName(), ": ", device.peer->name(),
                         ", local device ", device.device,
                         ", has ended the program without it; all positions must run the same "
                         "collectives of a program"));
      }
      has_ended = true;
      continue;  // perhaps it came right before that
    }
    if (is_asked) device_->sleep_record().Answer(device_->region());
    const Clock::duration waited = Clock::now() - began;
    if (waited >= LocalDevice::kLongWait && !std::exchange(is_long, true))
      device_->NoteLongWait(launch_->gang().ordinal);
    if (waited >= launch_->wait_max()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "collective ", CollectiveName(), " has waited for ", device.peer->name(),
          ", local device ", device.device, ", for ", launch_->wait_max().count(), " ms"));
    }
    // Who changes the pulse looks at `awaited` after that: either it sees this, or the pulse is not `seen` any more.
    awaited.store(SleepsFor(device.number(), deed), std::memory_order_seq_cst);
    is_woken = pulse.load(std::memory_order_seq_cst) != seen ||
               FutexWait(pulse, seen, kSleepMax, static_cast<FutexBits>(deed));
    awaited.store(0, std::memory_order_relaxed);
  }
}

void Waiter::Wake(std::span<const uint32_t> positions, Deed deed) {
  device_->Pulse();
  const uint32_t sleeps = SleepsFor(device_->number(), deed);
  const bool any = std::ranges::any_of(positions, [&](uint32_t position) {
    return DeviceOf(position).region().awaited.load(std::memory_order_seq_cst) == sleeps;
  });
  if (any) FutexWake(device_->region().pulse, static_cast<FutexBits>(deed));
}

bool Waiter::HasEndedWell(const PeerDevice& device) const {
  const Region& region = device.region();
  return region.left.load(std::memory_order_acquire) >= launch_->gang().order &&
         region.failed.load(std::memory_order_acquire) < launch_->gang().order;
}

// A sender overwrites an unread message only if the launch has failed on its worker, and a broken way fails its
// launches. In both cases an abort with the root cause follows.
absl::Status Waiter::AwaitReason(const PeerDevice& device, const absl::Status& otherwise) {
  return Asleep(device, std::nullopt, [&] {
    Clock::time_point deadline = Clock::now() + launch_->wait_max();
    const FutexWord& pulse = device.region().pulse;
    bool was_gone = false;
    while (true) {
      const uint32_t seen = pulse.load(std::memory_order_seq_cst);
      if (launch_->is_aborted()) return launch_->reason();
      const Clock::time_point now = Clock::now();
      if (!was_gone && device.peer->is_gone()) {
        was_gone = true;
        deadline = std::min(deadline, now + kReasonMax);
      }
      if (now >= deadline) return otherwise;
      FutexWait(pulse, seen, kLookMax);
    }
  });
}

absl::Status Waiter::AwaitGone(uint32_t source) {
  const PeerDevice& device = DeviceOf(source);
  return AwaitReason(device, absl::UnavailableError(absl::StrCat(
                                 device.peer->name(), ", local device ", device.device,
                                 ", has left the gang in the middle of a collective")));
}

}  // namespace gangway::collective
