// Implementation of late_ends.h.
#include "gangway/worker/service/launch/late_ends.h"

#include <utility>

namespace gangway::worker {

void LateEnds::Add(Ordinal ordinal, bool hurries, std::function<void()> end) {
  MutexLock lock(mutex_);
  held_.push_back(std::move(end));
  if (!hurries && ordinal.number() % kMax != 0 && held_.size() < kMax) return HoldLocked();
  due_.reset();
  // Under the lock: no end that is added later overtakes these.
  loop_->Post([late = shared_from_this(), going = std::exchange(held_, {})]() mutable {
    late->DropTimer();
    for (auto& each : going) each();
  });
}

void LateEnds::HoldLocked() {
  if (due_) return;
  due_ = Clock::now() + hold_max_;
  if (!timer_) SetTimerLocked();
}

void LateEnds::SetTimerLocked() {
  timer_ = loop_->PostAt(
      *due_, [late = shared_from_this(), setting = ++timer_settings_] { late->OnTimer(setting); });
}

// On the loop, which then need not wake for it.
void LateEnds::DropTimer() {
  MutexLock lock(mutex_);
  if (due_ || !timer_) return;
  loop_->Cancel(*timer_);
  timer_.reset();
}

void LateEnds::OnTimer(uint64_t setting) {
  std::vector<std::function<void()>> going;
  {
    MutexLock lock(mutex_);
    // An earlier one, which was taken off the timers of the loop before it could be cancelled.
    if (setting != timer_settings_) return;
    timer_.reset();
    if (!due_) return;
    if (*due_ > Clock::now()) return SetTimerLocked();  // those that it was set for have gone
    going.swap(held_);
    due_.reset();
  }
  for (auto& each : going) each();
}

}  // namespace gangway::worker
