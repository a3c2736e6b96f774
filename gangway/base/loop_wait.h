// LoopWait: one thread's wait for something that a task of an event loop, or any other thread, brings about. While it
// waits, its thread may lead the loop: it then polls and runs tasks in place of the loop's own thread, so that what it
// waits for wakes no second thread (EventLoop::Await).
//
// Threading: End from any thread, at any time, also after the loop's end. All else is for EventLoop, on the thread that
// waits; SleepUntil also for waits that have no loop to lead.
#ifndef GANGWAY_BASE_LOOP_WAIT_H_
#define GANGWAY_BASE_LOOP_WAIT_H_

#include <memory>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"

namespace gangway {

class LoopWait {
 public:
  // What is waited for has come, or never will. Again: no effect.
  void End() GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<Poller> polled;
    {
      MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      polled = polled_;
      changed_.NotifyAll();
    }
    if (polled != nullptr) polled->Wake();
  }

  bool ended() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return ended_;
  }

  // Returns at End, at Call, or at `deadline`.
  void SleepUntil(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, deadline,
                       [this]() GANGWAY_NO_ANALYSIS { return ended_ || called_; });
    called_ = false;
  }
  // Ends a SleepUntil, or the next one.
  void Call() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    called_ = true;
    changed_.NotifyAll();
  }

  // From here until EndPoll, End also wakes `poller`. False: it has ended.
  bool BeginPoll(std::shared_ptr<Poller> poller) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!ended_) polled_ = std::move(poller);
    return !ended_;
  }
  void EndPoll() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    polled_ = nullptr;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Poller> polled_ GANGWAY_GUARDED_BY(mutex_);
  bool ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool called_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_LOOP_WAIT_H_
