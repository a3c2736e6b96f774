// Implementation of activity.h.
#include "gangway/client/activity.h"

#include "gangway/base/clock.h"

namespace gangway::client {
namespace {
constexpr int kIdleLooks = 2;
}  // namespace

void Activity::UseLatencyRequest() {
  MutexLock lock(mutex_);
  latency_.Use(options_.loop);
}

void Activity::Begin() {
  MutexLock lock(mutex_);
  awaited_.fetch_add(1, std::memory_order_relaxed);
  NoteLocked();
  WatchLocked();
}

void Activity::End(uint64_t count) {
  if (count == 0) return;
  MutexLock lock(mutex_);
  awaited_.fetch_sub(static_cast<int64_t>(count), std::memory_order_relaxed);
  NoteLocked();
}

void Activity::SetBusy(bool busy) {
  MutexLock lock(mutex_);
  busy_ = busy;
  NoteLocked();
}

void Activity::Watch() {
  MutexLock lock(mutex_);
  WatchLocked();
}

void Activity::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
}

void Activity::NoteLocked() { latency_.Set(busy_ || awaits()); }

void Activity::WatchLocked() {
  if (stopped_ || std::exchange(watching_, true)) return;
  options_.loop->PostAt(Clock::now() + options_.interval, [this] { OnTimer(); });
}

void Activity::OnTimer() {
  {
    MutexLock lock(mutex_);
    watching_ = false;
    if (stopped_) return;
  }
  const bool idle = !options_.look();
  MutexLock lock(mutex_);
  idle_looks_ = idle ? idle_looks_ + 1 : 0;
  if (idle_looks_ < kIdleLooks) return WatchLocked();
  idle_looks_ = 0;
}

}  // namespace gangway::client
