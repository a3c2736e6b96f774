// Executor: a named place where callbacks run. EventLoop: one thread that runs tasks in order, fires timers and calls
// what its poller watches; a service's state is owned by its loop and needs no lock.
#ifndef GANGWAY_BASE_EXECUTOR_H_
#define GANGWAY_BASE_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"
#include "gangway/base/thread.h"

namespace gangway {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` later, in the order of the calls, except what a poller's calls post (EventLoop::poller). Never blocks,
  // never runs `task` inline. Thread-safe.
  virtual void Post(std::function<void()> task) = 0;
};

class EventLoop final : public Executor {
 public:
  explicit EventLoop(const std::string& name);  // the thread's name, at most 15 characters
  ~EventLoop() override;                        // Stop()

  void Post(std::function<void()> task) override;

  // Runs `task` on the loop at `when`; returns an id for Cancel (only from the loop's own thread).
  uint64_t PostAt(Clock::time_point when, std::function<void()> task);
  void Cancel(uint64_t timer);

  // Runs `flush` on the loop after every round of tasks, from the next round on: a service flushes
  // the round's batches in it. Several may be added.
  void AddRoundEnd(std::function<void()> flush);

  // What it watches is called on the loop, between two rounds of tasks. What is posted in those calls runs before all
  // other tasks, so bytes that arrived before a task was posted are handled before it, as far as one call reads them.
  // Made by the first call, with the errors of Poller::Create. It may outlive the loop, and then calls nothing.
  absl::StatusOr<std::shared_ptr<Poller>> poller() GANGWAY_EXCLUDES(mutex_);

  bool IsLoopThread() const { return Current() == this; }

  // The loop that owns the calling thread; null if none.
  static EventLoop* Current() { return static_cast<EventLoop*>(Thread::Local()); }
  // Both only on the loop's own thread. round() is the number of rounds begun. AtRoundEnd runs
  // `task` once, after this round's tasks and the flushes of AddRoundEnd.
  uint64_t round() const { return round_; }
  void AtRoundEnd(std::function<void()> task) { at_round_end_.push_back(std::move(task)); }

  // Runs the queued tasks, then ends the thread; later posts are dropped. Must not be called on the
  // loop's own thread.
  void Stop();

 private:
  void Run();
  bool DueLocked() const GANGWAY_REQUIRES(mutex_);
  void Wait() GANGWAY_EXCLUDES(mutex_);
  void Poll(Poller& poller, Clock::time_point deadline);
  void Wake(Poller* poller);

  // Accessed only by the loop's thread.
  std::vector<std::function<void()>> round_ends_;
  std::vector<std::function<void()>> at_round_end_;
  std::vector<std::function<void()>> polled_;  // posted while polling_
  bool polling_ = false;
  uint64_t round_ = 0;

  Mutex mutex_;
  CondVar wake_;
  std::shared_ptr<Poller> poller_ GANGWAY_GUARDED_BY(mutex_);  // once set, stays
  std::vector<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> timers_
      GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_timer_ GANGWAY_GUARDED_BY(mutex_) = 1;
  bool waiting_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  Thread thread_;  // last: starts after the other members exist
};

}  // namespace gangway

#endif  // GANGWAY_BASE_EXECUTOR_H_
