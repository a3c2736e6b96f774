// Executor: a named place where callbacks run. EventLoop: one thread at a time that runs tasks in order, fires timers
// and calls what its poller watches; a service's state is owned by its loop and needs no lock.
//
// That thread is the loop's own, unless others wait in Await on a loop that has a poller: then one of them leads. It
// polls and runs whole rounds, as the loop's thread, until what it waits for has come; then it hands over to another
// that waits, or back to the loop's own thread, which sleeps behind a gate (poller_gate.h) and is woken for neither. So
// an answer that one thread waits for wakes that thread only. Rounds never overlap, whichever threads run them.
#ifndef GANGWAY_BASE_EXECUTOR_H_
#define GANGWAY_BASE_EXECUTOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/loop_wait.h"
#include "gangway/base/mutex.h"
#include "gangway/base/poller.h"
#include "gangway/base/poller_gate.h"
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

  // Runs `task` on the loop at `when`; returns an id for Cancel (only from the loop's own thread). A loop that sleeps
  // in its poller is not woken before that.
  uint64_t PostAt(Clock::time_point when, std::function<void()> task);
  void Cancel(uint64_t timer);

  // Runs `flush` on the loop after every round of tasks, from the next round on: a service flushes
  // the round's batches in it. Several may be added.
  void AddRoundEnd(std::function<void()> flush);

  // What it watches is called on the loop, between two rounds of tasks. What is posted in those calls runs before all
  // other tasks, so bytes that arrived before a task was posted are handled before it, as far as one call reads them.
  // Made by the first call, with the errors of Poller::Create. It may outlive the loop, and then calls nothing.
  absl::StatusOr<std::shared_ptr<Poller>> poller() GANGWAY_EXCLUDES(mutex_);

  // Waits until `wait` has ended, at most until `deadline`; whether it has ended. While it waits, the calling thread
  // may lead the loop, and then spins for a moment before it sleeps (spin.h). Without a poller, or once the loop has
  // stopped, it only sleeps. Returns at once on this loop's thread, which would wait for itself.
  bool Await(const std::shared_ptr<LoopWait>& wait, Clock::time_point deadline)
      GANGWAY_EXCLUDES(mutex_);

  // Also of a thread that leads.
  bool IsLoopThread() const { return Current() == this; }

  // The loop that owns the calling thread, or is led by it; null if none.
  static EventLoop* Current() { return static_cast<EventLoop*>(Thread::Local()); }
  // Both only on the loop's own thread. round() is the number of rounds begun. AtRoundEnd runs
  // `task` once, after this round's tasks and the flushes of AddRoundEnd.
  uint64_t round() const { return round_; }
  void AtRoundEnd(std::function<void()> task) { at_round_end_.push_back(std::move(task)); }

  // Runs the queued tasks, then ends the thread; later posts are dropped. Threads in Await lead no longer, and it
  // returns when all have noticed. Must not be called on the loop's own thread.
  void Stop() GANGWAY_EXCLUDES(mutex_);

 private:
  enum class Part { kLeads, kFollows, kLeft };

  // Of the loop's own thread.
  void Run();
  bool Turn() GANGWAY_EXCLUDES(mutex_);
  bool BeginTurn() GANGWAY_EXCLUDES(mutex_);
  // Of the thread whose turn it is.
  void RunRound() GANGWAY_EXCLUDES(mutex_);
  void Poll(Poller& poller, Clock::time_point deadline);
  bool DueLocked() const GANGWAY_REQUIRES(mutex_);
  bool IsDue() const GANGWAY_EXCLUDES(mutex_);
  // Of threads in Await.
  bool Join() GANGWAY_EXCLUDES(mutex_);
  Part TakePart(const std::shared_ptr<LoopWait>& wait) GANGWAY_EXCLUDES(mutex_);
  void Lead(LoopWait& wait, Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);
  Clock::time_point NextDue(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);
  void Leave(const std::shared_ptr<LoopWait>& wait) GANGWAY_EXCLUDES(mutex_);
  void ResignLocked() GANGWAY_REQUIRES(mutex_);
  void SetAlarmLocked() GANGWAY_REQUIRES(mutex_);
  bool ElectLocked() GANGWAY_REQUIRES(mutex_);

  void Wake(Poller* poller);

  // Accessed only by the thread whose turn it is.
  std::vector<std::function<void()>> round_ends_;
  std::vector<std::function<void()>> at_round_end_;
  std::vector<std::function<void()>> polled_;                 // posted while polling_
  std::vector<std::function<void()>> posted_, tasks_, once_;  // of the round; their memory is kept
  bool polling_ = false;
  uint64_t round_ = 0;

  mutable Mutex mutex_;
  CondVar wake_;
  std::shared_ptr<Poller> poller_ GANGWAY_GUARDED_BY(mutex_);  // once set, stays
  std::vector<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> timers_
      GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_timer_ GANGWAY_GUARDED_BY(mutex_) = 1;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool waiting_ GANGWAY_GUARDED_BY(mutex_) = false;  // the thread whose turn it is sleeps

  std::unique_ptr<PollerGate> gate_
      GANGWAY_GUARDED_BY(mutex_);  // once set, stays; shut while one leads
  // Where there is a gate: when the poller will wake whichever thread polls then.
  Clock::time_point alarm_ GANGWAY_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::shared_ptr<LoopWait> leader_
      GANGWAY_GUARDED_BY(mutex_);  // null: it is the own thread's turn
  std::deque<std::shared_ptr<LoopWait>> followers_ GANGWAY_GUARDED_BY(mutex_);
  bool own_turn_ GANGWAY_GUARDED_BY(mutex_) = true;  // false: the own thread sleeps behind the gate
  size_t joined_ GANGWAY_GUARDED_BY(mutex_) = 0;     // threads in Await
  CondVar left_;
  Thread thread_;  // last: starts after the other members exist
};

}  // namespace gangway

#endif  // GANGWAY_BASE_EXECUTOR_H_
