// Implementation of launch.h.
#include "gangway/collective/execution/launch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/cores.h"

namespace gangway::collective {
namespace {

// Operands outside the heap that a launch notes.
constexpr size_t kOutsideHeapMax = 256;
// Threads that tell a launch's workers of it: its client, and the scheduler.
constexpr size_t kTellers = 2;

}  // namespace

Launch::Launch(std::shared_ptr<const Plan> plan, std::shared_ptr<const PeerDevices> devices,
               GangName gang, std::chrono::milliseconds wait_max)
    : plan_(std::move(plan)),
      devices_(std::move(devices)),
      gang_(gang),
      wait_max_(wait_max),
      is_crowded_(members_of_host() > Cores()),
      is_crowded_at_first_(members_of_host() + devices_->workers_of_host() + kTellers > Cores()) {}

std::shared_ptr<Launch> Launch::Begin(std::shared_ptr<const Plan> plan,
                                      std::shared_ptr<const PeerDevices> devices, GangName gang,
                                      std::chrono::milliseconds wait_max) {
  std::shared_ptr<Launch> launch(new Launch(std::move(plan), std::move(devices), gang, wait_max));
  for (const auto& peer : launch->devices()->far_peers()) peer->Join(launch);
  return launch;
}

void Launch::Abort(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (has_ended_ || !reason_.ok()) return;
    reason_ = why;
  }
  is_aborted_->store(true, std::memory_order_release);
  // Its members here may sleep at the pulse of any other; one that has not yet gone to sleep looks again soon.
  for (const PeerDevice& device : *devices_)
    if (device.peer != nullptr) FutexWake(device.region().pulse);
}

absl::Status Launch::End() {
  for (const auto& peer : devices_->far_peers()) {
    if (!peer->is_gone()) continue;
    Abort(absl::DataLossError(
        absl::StrCat("the collectives of the gang have lost their way to ", peer->name())));
  }
  MutexLock lock(mutex_);
  has_ended_ = reason_.ok();
  return reason_;
}

void Launch::NoteOutsideHeap(const std::byte* operand) {
  MutexLock lock(mutex_);
  if (outside_heap_.size() < kOutsideHeapMax &&
      std::ranges::find(outside_heap_, operand) == outside_heap_.end())
    outside_heap_.push_back(operand);
}

std::vector<const std::byte*> Launch::outside_heap() const {
  MutexLock lock(mutex_);
  return outside_heap_;
}

absl::Status Launch::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

}  // namespace gangway::collective
