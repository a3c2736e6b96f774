// Finds devices whose thread has been in one call of the device runtime for too long. It compares
// counters only, so that the device threads read no clock. Used by one thread; never fails.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_STUCK_WATCH_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_STUCK_WATCH_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/worker/service/device/device_thread.h"

namespace gangway::worker {

struct StuckCall {
  uint32_t device = 0;  // index on the worker
  Ordinal gang;
  std::chrono::milliseconds duration{0};  // at least
};

class StuckWatch {
 public:
  using Time = Clock::time_point;

  explicit StuckWatch(std::chrono::milliseconds limit) : limit_(limit) {}

  // `calls`: the state of each device at `now`; the devices must be the same in every call.
  std::vector<StuckCall> Look(const std::vector<DeviceThread::Call>& calls, Time now) {
    seen_.resize(calls.size());
    std::vector<StuckCall> stuck;
    for (uint32_t device = 0; device < calls.size(); ++device) {
      Seen& seen = seen_[device];
      if (seen.count != calls[device].count) seen = {calls[device].count, now};
      if (seen.count % 2 == 0 || now - seen.since < limit_) continue;
      stuck.push_back({device, calls[device].gang,
                       std::chrono::duration_cast<std::chrono::milliseconds>(now - seen.since)});
    }
    return stuck;
  }

 private:
  struct Seen {
    uint64_t count = 0;
    Time since;
  };
  const std::chrono::milliseconds limit_;
  std::vector<Seen> seen_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_STUCK_WATCH_H_
