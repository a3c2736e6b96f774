// The only thread that touches a local device's buffers and calls ExecuteOn, in the order of Post
// (GS-1). A program may run inside ExecuteOn and wait there for its peers, so the thread does
// nothing else: no bytes, no messages. A task may wait for slots and for the in-flight limit; only
// earlier work can end these waits (GS-4), so they end.
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

  // Thread-safe. After Stop the task is dropped.
  void Post(std::function<void()> task) GANGWAY_EXCLUDES(mutex_);

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

  const std::string name_;
  const std::shared_ptr<InFlight> executes_;
  std::atomic<uint64_t> calls_{0}, call_gang_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GANGWAY_GUARDED_BY(mutex_);
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool ended_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when all other members exist
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_THREAD_H_
