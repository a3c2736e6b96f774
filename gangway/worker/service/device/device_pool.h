// Threads that the devices of several simulated workers in one process share. A few tasks run at a time; a task that
// blocks (in a collective, or for a result) holds its thread, so others get threads of their own when none of those
// that run has ended within a millisecond. So tasks that never block share the few threads, and those that wait for one
// another all get to run.
//
// Threading: Run from any thread. Destroyed on another thread than its own; it waits for the tasks that run, and drops
// the others.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_POOL_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "gangway/base/mutex.h"
#include "gangway/base/thread.h"

namespace gangway::worker {

class DevicePool {
 public:
  static constexpr std::chrono::milliseconds kStalledAfter{1};

  // `width`: how many tasks run at a time if none blocks.
  explicit DevicePool(size_t width);
  ~DevicePool();

  void Run(std::function<void()> task) GANGWAY_EXCLUDES(mutex_);

  size_t threads() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return threads_.size();
  }

 private:
  void Serve() GANGWAY_EXCLUDES(mutex_);
  void Watch() GANGWAY_EXCLUDES(mutex_);
  // Wakes the watch if tasks wait although no more may run.
  void WatchForStall() GANGWAY_REQUIRES(mutex_);
  void RunAllThatWait() GANGWAY_REQUIRES(mutex_);
  bool IsFull() const GANGWAY_REQUIRES(mutex_) { return running_ >= allowed_; }

  const size_t width_;
  mutable Mutex mutex_;
  CondVar work_, full_, stopped_;
  std::deque<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  size_t running_ GANGWAY_GUARDED_BY(mutex_) = 0;
  size_t idle_ GANGWAY_GUARDED_BY(mutex_) = 0;  // threads that wait for a task
  size_t allowed_
      GANGWAY_GUARDED_BY(mutex_);  // to run: `width`, and as many as it took while tasks blocked
  uint64_t taken_ GANGWAY_GUARDED_BY(mutex_) = 0;
  bool watching_ GANGWAY_GUARDED_BY(mutex_) = false;  // the watch is awake
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_ GANGWAY_GUARDED_BY(mutex_);
  Thread watch_;  // last: starts when all other members exist
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_POOL_H_
