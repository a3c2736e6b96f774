// Implementation of sim_timer.h.
#include "gangway/device/sim/sim_timer.h"

#include <algorithm>
#include <chrono>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"

namespace gangway::device {
namespace {

EventLoop& TimerLoop() {
  static auto* const loop = new EventLoop("gw-sim-timer");
  return *loop;
}

}  // namespace

int64_t RealSimTimer::NowMicros() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

void RealSimTimer::At(int64_t micros, std::function<void()> task) {
  TimerLoop().PostAt(Clock::time_point(std::chrono::microseconds(micros)), std::move(task));
}

int64_t VirtualSimTimer::NowMicros() const {
  MutexLock lock(mutex_);
  return now_;
}

void VirtualSimTimer::At(int64_t micros, std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.emplace(std::pair(std::max(micros, now_), next_++), std::move(task));
}

bool VirtualSimTimer::RunOne(int64_t until) {
  std::function<void()> task;
  {
    MutexLock lock(mutex_);
    if (tasks_.empty() || tasks_.begin()->first.first > until) return false;
    now_ = tasks_.begin()->first.first;
    task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
  }
  task();
  return true;
}

void VirtualSimTimer::Advance(int64_t micros) {
  const int64_t until = NowMicros() + micros;
  while (RunOne(until)) {
  }
  MutexLock lock(mutex_);
  now_ = until;
}

int64_t VirtualSimTimer::RunUntilIdle(int64_t limit_micros) {
  const int64_t start = NowMicros();
  while (RunOne(start + limit_micros)) {
  }
  return NowMicros() - start;
}

}  // namespace gangway::device
