// The thread that touches a local device's buffers and calls ExecuteOn. Gangs run in the order of Post (GS-1),
// other tasks too, unless gangs before them wait at the gate (Turn). A program may run inside ExecuteOn and wait there
// for its peers, so the thread does nothing else: no bytes, no messages. A task may wait for slots and for the
// in-flight limit; only earlier work can end these waits (GS-4), so they end. The wait at the gate has a limit (TM-1).
// While the device is idle, another thread may borrow it, so one thread at a time uses it.
// Of a simulated device that shares a DevicePool, it is a turn on one of the pool's threads while it has tasks.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_THREAD_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_THREAD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/base/thread.h"
#include "gangway/worker/service/device/device_pool.h"
#include "gangway/worker/service/device/in_flight.h"

namespace gangway::worker {

class DeviceThread {
 public:
  // At most `inflight_max` executes are in flight at a time. `gate_wait_max`: how long the head of the gate's
  // queue waits without any gang entering or leaving the device. `pool`: null, or what it runs on, for devices without
  // gangs of kGangAlone; it outlives this.
  DeviceThread(const std::string& name, int inflight_max, std::chrono::milliseconds gate_wait_max,
               DevicePool* pool = nullptr);
  ~DeviceThread();  // after Stop() returned true

  // How a task passes the gate, which keeps gangs with the runtime's own collectives from being in progress together.
  // Each device of such a gang blocks a thread of the runtime's pool, so several gangs could block all of its threads.
  enum class Turn {
    kAny,   // not a gang
    kGang,  // waits behind the gangs that wait at the gate: gangs keep their order (GS-1)
    kGangAlone,  // enters if no such gang is in the device, or if it cannot begin before they have ended (`follows`)
  };
  struct Task {
    // `entry`: OK; for kGangAlone also DEADLINE_EXCEEDED, which names the gang in the device: this one has not entered.
    std::function<void(const absl::Status& entry)> run;
    Turn turn = Turn::kAny;
    // Of kAny: whether the task's inputs are settled. Until they are, it waits behind the gangs at the gate, since one
    // of them may settle them. Empty: always.
    std::function<bool()> ready;
    // Of kGangAlone: its number, not 0; and the last gang of kGangAlone whose results on this device it reads, itself
    // or through other gangs (0: none). The runtime does not begin it before that gang has ended.
    Ordinal gang;
    Ordinal follows;
  };

  // Thread-safe. After Stop the task is dropped.
  void Post(Task task) GANGWAY_EXCLUDES(mutex_);

  // Thread-safe. A gang of kGangAlone that has entered calls it once, when it has ended or will not begin.
  void Leave() GANGWAY_EXCLUDES(mutex_);

  // Thread-safe. Asks the tasks at the gate again whether they are ready: called when a shard that one of them may
  // read was settled by anything but a task of this thread.
  void Recheck() GANGWAY_EXCLUDES(mutex_);

  // Thread-safe. If nothing is queued, running or in flight on the device, lends it to the caller, which may then do
  // there what a gang's task does. Tasks that are posted wait until GiveBack.
  [[nodiscard]] bool Borrow() GANGWAY_EXCLUDES(mutex_);
  void GiveBack() GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<InFlight>& executes() const { return executes_; }
  // Tasks that have not begun, and executes in flight. Thread-safe.
  size_t backlog() const GANGWAY_EXCLUDES(mutex_);

  // Bracket a call of the device runtime, on the thread itself or one that has borrowed the device. A StuckWatch that
  // polls call() detects a call that does not return.
  void BeginCall(Ordinal gang) {
    call_gang_.store(gang, std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_release);
  }
  void EndCall() { calls_.fetch_add(1, std::memory_order_release); }

  struct Call {
    uint64_t count = 0;  // of begins and ends; odd during a call
    Ordinal gang;        // of the last call
    int in_flight = 0;   // executes that have not ended
  };
  Call call() const {
    const uint64_t count = calls_.load(std::memory_order_acquire);
    return {count, call_gang_.load(std::memory_order_relaxed), executes_->count()};
  }

  // Drops the queue and ends the thread. False: at `deadline`, a task is stuck and the thread still runs, or the device
  // is still borrowed; then only ending the process helps.
  [[nodiscard]] bool Stop(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);

 private:
  using Work = std::function<void()>;
  enum class User { kNone, kThread, kBorrower };

  void Run() GANGWAY_EXCLUDES(mutex_);
  // Lets Run, or a turn on the pool, look for tasks.
  void Wake() GANGWAY_EXCLUDES(mutex_);
  void TakeTurn() GANGWAY_EXCLUDES(mutex_);
  bool MayEnter(const Task& task) const GANGWAY_REQUIRES(mutex_);
  // `first`: no task before it waits.
  bool Waits(const Task& task, bool first) const GANGWAY_REQUIRES(mutex_);
  // Takes the next task that can run off its queue; null if none can. Called by what runs the tasks.
  Work Take() GANGWAY_REQUIRES(mutex_);
  Work Enter(Task task) GANGWAY_REQUIRES(mutex_);
  // When the head of the gate's queue stops waiting; a day from now if nothing is in the queue.
  Clock::time_point WaitsUntil() const GANGWAY_REQUIRES(mutex_);

  const std::chrono::milliseconds gate_wait_max_;
  DevicePool* const pool_;
  const std::shared_ptr<InFlight> executes_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<Ordinal> call_gang_{Ordinal()};
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Task> queue_ GANGWAY_GUARDED_BY(mutex_);
  std::deque<Task> at_gate_ GANGWAY_GUARDED_BY(mutex_);      // posted before those of queue_
  int inside_ GANGWAY_GUARDED_BY(mutex_) = 0;                // gangs of kGangAlone in the device
  Ordinal last_entered_ GANGWAY_GUARDED_BY(mutex_);          // of them
  Clock::time_point gate_moved_ GANGWAY_GUARDED_BY(mutex_);  // the last time one entered or left
  User user_ GANGWAY_GUARDED_BY(mutex_) = User::kNone;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool ended_ GANGWAY_GUARDED_BY(mutex_) = false;  // and, on a pool, whenever it has no turn
  Thread thread_;  // none on a pool. Last: starts when all other members exist
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_DEVICE_THREAD_H_
