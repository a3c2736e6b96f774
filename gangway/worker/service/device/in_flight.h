// Counts work that ends asynchronously: executes of one device, callbacks that the runtime still
// owes. Thread-safe. All users share ownership, so that a late End never finds it destroyed.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_IN_FLIGHT_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_IN_FLIGHT_H_

#include <chrono>
#include <cstdint>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"

namespace gangway::worker {

class InFlight {
 public:
  // At most `limit` at a time; 0: any number.
  explicit InFlight(int limit = 0) : limit_(limit) {}

  // Waits until the count is below the limit. False: `deadline` passed, or Abort was called.
  [[nodiscard]] bool Begin(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto ready = [this]()
                     GANGWAY_NO_ANALYSIS { return aborted_ || limit_ == 0 || count_ < limit_; };
    if (!ready() && !changed_.WaitUntil(mutex_, deadline, ready)) return false;
    if (aborted_) return false;
    ++count_;
    ++begun_;
    return true;
  }

  // Adds one regardless of the limit.
  void Add() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++count_;
  }

  void End() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    --count_;
    changed_.NotifyAll();
  }

  // How many have begun so far, by Begin, and how many of them have ended.
  uint64_t begun() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return begun_;
  }
  uint64_t ended() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return begun_ - static_cast<uint64_t>(count_);
  }

  int count() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return count_;
  }

  // Makes every Begin return false, including those that wait now.
  void Abort() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    aborted_ = true;
    changed_.NotifyAll();
  }

  // Waits until the count is 0. False: `deadline` passed.
  bool WaitIdle(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return changed_.WaitUntil(mutex_, deadline,
                              [this]() GANGWAY_NO_ANALYSIS { return count_ == 0; });
  }

 private:
  const int limit_;
  mutable Mutex mutex_;
  CondVar changed_;
  int count_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t begun_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool aborted_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_IN_FLIGHT_H_
