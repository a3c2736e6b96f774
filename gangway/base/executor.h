// Executor: where callbacks run, by name and never by accident. EventLoop: one thread that runs
// tasks in order and fires timers; a service's state is owned by its loop and needs no lock.
#ifndef GANGWAY_BASE_EXECUTOR_H_
#define GANGWAY_BASE_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gangway/base/mutex.h"

namespace gangway {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` later, in the order of the calls. Never blocks, never runs it inline. Thread-safe.
  virtual void Post(std::function<void()> task) = 0;
};

class EventLoop final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EventLoop(std::string name);  // the thread's name, at most 15 characters
  ~EventLoop() override;                 // Stop()

  void Post(std::function<void()> task) override;

  // Runs `task` on the loop at `when`; returns an id for Cancel (only from the loop's own thread).
  uint64_t PostAt(Clock::time_point when, std::function<void()> task);
  void Cancel(uint64_t timer);

  // Called on the loop after each round of tasks, those posted after this call: where a service
  // flushes what the round has batched. Several may be added.
  void AddRoundEnd(std::function<void()> flush);

  bool IsLoopThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // The loop whose thread this is, or none.
  static EventLoop* Current();
  // On the loop's own thread: the rounds that it has begun; and runs `task` once, after this
  // round's tasks and what AddRoundEnd added.
  uint64_t round() const { return round_; }
  void AtRoundEnd(std::function<void()> task) { at_round_end_.push_back(std::move(task)); }

  // Runs the tasks that are queued, then ends the thread; later posts are dropped. Not from the
  // loop's own thread.
  void Stop();

 private:
  void Run();

  // The loop's thread's alone.
  std::vector<std::function<void()>> round_ends_;
  std::vector<std::function<void()>> at_round_end_;
  uint64_t round_ = 0;

  Mutex mutex_;
  CondVar wake_;
  std::vector<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> timers_
      GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_timer_ GANGWAY_GUARDED_BY(mutex_) = 1;
  bool waiting_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::string name_;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace gangway

#endif  // GANGWAY_BASE_EXECUTOR_H_
