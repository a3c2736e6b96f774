// Mutex, MutexLock and CondVar over std::mutex with clang's thread-safety annotations, so that the
// analysis and TSan both see them. Waits take a deadline: there is no unbounded wait. In a World, they are its fibers'.
#ifndef GANGWAY_BASE_MUTEX_H_
#define GANGWAY_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "gangway/base/clock.h"
#include "gangway/base/world.h"

#if defined(__clang__)
#define GANGWAY_ANNOTATE(x) __attribute__((x))
#else
#define GANGWAY_ANNOTATE(x)
#endif
#define GANGWAY_CAPABILITY(x) GANGWAY_ANNOTATE(capability(x))
#define GANGWAY_SCOPED_CAPABILITY GANGWAY_ANNOTATE(scoped_lockable)
#define GANGWAY_GUARDED_BY(x) GANGWAY_ANNOTATE(guarded_by(x))
#define GANGWAY_REQUIRES(...) GANGWAY_ANNOTATE(requires_capability(__VA_ARGS__))
#define GANGWAY_EXCLUDES(...) GANGWAY_ANNOTATE(locks_excluded(__VA_ARGS__))
#define GANGWAY_ACQUIRE(...) GANGWAY_ANNOTATE(acquire_capability(__VA_ARGS__))
#define GANGWAY_RELEASE(...) GANGWAY_ANNOTATE(release_capability(__VA_ARGS__))
#define GANGWAY_NO_ANALYSIS GANGWAY_ANNOTATE(no_thread_safety_analysis)

namespace gangway {

class GANGWAY_CAPABILITY("mutex") Mutex {
 public:
  void Lock() GANGWAY_ACQUIRE() GANGWAY_NO_ANALYSIS {
    World* world = World::installed();
    if (world == nullptr) return mutex_.lock();
    while (!mutex_.try_lock()) world->Wait(this, World::Time::max());
  }
  void Unlock() GANGWAY_RELEASE() GANGWAY_NO_ANALYSIS {
    mutex_.unlock();
    if (World* world = World::installed(); world != nullptr) world->NotifyOne(this);
  }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class GANGWAY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GANGWAY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() GANGWAY_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Waits, with `mutex` held, until `ready()` or `deadline`; returns ready() at the end.
  template <typename Ready>
  bool WaitUntil(Mutex& mutex, Clock::time_point deadline, Ready ready)
      GANGWAY_REQUIRES(mutex) GANGWAY_NO_ANALYSIS {
    if (World* world = World::installed(); world != nullptr) {
      while (!ready()) {
        if (world->Now() >= deadline) return false;
        mutex.Unlock();
        world->Wait(this, deadline);
        mutex.Lock();
      }
      return true;
    }
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    bool result = condition_.wait_until(lock, deadline, ready);
    lock.release();
    return result;
  }
  template <typename Ready>
  bool WaitFor(Mutex& mutex, std::chrono::milliseconds limit, Ready ready)
      GANGWAY_REQUIRES(mutex) GANGWAY_NO_ANALYSIS {
    return WaitUntil(mutex, Clock::now() + limit, ready);
  }
  void NotifyOne() {
    World* world = World::installed();
    world == nullptr ? condition_.notify_one() : world->NotifyOne(this);
  }
  void NotifyAll() {
    World* world = World::installed();
    world == nullptr ? condition_.notify_all() : world->NotifyAll(this);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_MUTEX_H_
