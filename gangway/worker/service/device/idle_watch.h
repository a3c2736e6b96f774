// Tells when the devices of a worker have been idle for a while, so that memory kept for the next program is given
// back. It compares counters only, as StuckWatch does. Used by one thread; never fails.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_IDLE_WATCH_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_IDLE_WATCH_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/worker/service/device/device_thread.h"

namespace gangway::worker {

class IdleWatch {
 public:
  using Time = Clock::time_point;

  explicit IdleWatch(std::chrono::milliseconds after) : after_(after) {}

  // `calls`: the state of each device at `now`. True: for `after`, no device has begun or ended a call, nor executed
  // a program, as far as the calls of this function have seen.
  bool Look(const std::vector<DeviceThread::Call>& calls, Time now) {
    uint64_t count = 0;
    bool executing = false;
    for (const DeviceThread::Call& call : calls) {
      count += call.count;
      executing |= call.in_flight > 0;
    }
    if (count != count_ || executing) {
      count_ = count;
      since_ = now;
    }
    return now - since_ >= after_;
  }

 private:
  const std::chrono::milliseconds after_;
  uint64_t count_ = UINT64_MAX;
  Time since_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_IDLE_WATCH_H_
