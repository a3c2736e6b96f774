// The only thread that touches a local device's buffers and calls ExecuteOn. Gangs run in the order of Post (GS-1),
// other tasks too, unless gangs before them wait at the gate (Turn). A program may run inside ExecuteOn and wait there
// for its peers, so the thread does nothing else: no bytes, no messages. A task may wait for slots and for the
// in-flight limit; only earlier work can end these waits (GS-4), so they end.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_THREAD_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_THREAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gangway/base/mutex.h"
#include "gangway/worker/service/in_flight.h"

namespace gangway::worker {

class DeviceThread {
 public:
  // At most `inflight_max` executes are in flight at a time.
  DeviceThread(const std::string& name, int inflight_max);
  ~DeviceThread();  // after Stop() returned true

  // How a task passes the gate, which admits one gang with the runtime's own collectives to the device at a time. Each
  // device of such a gang blocks a thread of the runtime's pool, so several gangs could block all of its threads.
  enum class Turn {
    kAny,        // not a gang
    kGang,       // waits behind the gangs that wait at the gate: gangs keep their order (GS-1)
    kGangAlone,  // shuts the gate, and calls OpenGate() once when it has left the device
  };
  struct Task {
    std::function<void()> run;
    Turn turn = Turn::kAny;
    // Of kAny: whether the task's inputs are settled. Until they are, it waits behind the gangs at the gate, since one
    // of them may settle them. Empty: always.
    std::function<bool()> ready;
  };

  // Thread-safe. After Stop the task is dropped.
  void Post(Task task) GANGWAY_EXCLUDES(mutex_);

  // Thread-safe. Opens the gate that a task of kGangAlone has shut.
  void OpenGate() GANGWAY_EXCLUDES(mutex_);

  const std::shared_ptr<InFlight>& executes() const { return executes_; }

  // Bracket a call of the device runtime, on the thread itself. A StuckWatch that polls call()
  // detects a call that does not return.
  void BeginCall(uint64_t gang) {
    call_gang_.store(gang, std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_release);
  }
  void EndCall() { calls_.fetch_add(1, std::memory_order_release); }

  struct Call {
    uint64_t count = 0;  // of begins and ends; odd during a call
    uint64_t gang = 0;   // of the last call
  };
  Call call() const {
    const uint64_t count = calls_.load(std::memory_order_acquire);
    return {count, call_gang_.load(std::memory_order_relaxed)};
  }

  // Drops the queue and ends the thread. False: a task is stuck and the thread still runs at
  // `deadline`; then only ending the process helps.
  [[nodiscard]] bool Stop(InFlight::Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);

 private:
  void Run() GANGWAY_EXCLUDES(mutex_);
  // `first`: no task before it waits.
  bool Waits(const Task& task, bool first) const GANGWAY_REQUIRES(mutex_);
  // Takes the next task that can run off its queue; null if none can.
  std::function<void()> Take() GANGWAY_REQUIRES(mutex_);

  const std::string name_;
  const std::shared_ptr<InFlight> executes_;
  std::atomic<uint64_t> calls_{0}, call_gang_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> queue_ GANGWAY_GUARDED_BY(mutex_);
  std::deque<Task> at_gate_ GANGWAY_GUARDED_BY(mutex_);  // posted before those of queue_
  bool gate_shut_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when all other members exist
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_THREAD_H_
