// The clock of the simulated device: real time, or virtual time that a test advances. Thread-safe.
#ifndef GANGWAY_DEVICE_SIM_SIM_TIMER_H_
#define GANGWAY_DEVICE_SIM_SIM_TIMER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "gangway/base/mutex.h"

namespace gangway::device {

class SimTimer {
 public:
  virtual ~SimTimer() = default;
  virtual int64_t NowMicros() const = 0;
  // Runs `task` once the time is `micros` or later: in order of time, then of calls. Never inline.
  virtual void At(int64_t micros, std::function<void()> task) = 0;
};

// The machine's steady clock. The tasks of all timers of the process run on one thread, which is
// never joined, so a task may drop the last reference to any object.
class RealSimTimer final : public SimTimer {
 public:
  int64_t NowMicros() const override;
  void At(int64_t micros, std::function<void()> task) override;
};

// Time stands still until Advance or RunUntilIdle, which run the tasks in their caller's thread.
class VirtualSimTimer final : public SimTimer {
 public:
  int64_t NowMicros() const override;
  void At(int64_t micros, std::function<void()> task) override;

  // Advances to now + `micros` and runs every task due until then at its own time, including tasks
  // that other tasks add.
  void Advance(int64_t micros);
  // Runs tasks in order of time until none is left or `limit_micros` have passed. Returns the
  // elapsed time.
  int64_t RunUntilIdle(int64_t limit_micros);

 private:
  // Runs the next task if it is due at `until` or before.
  bool RunOne(int64_t until);

  mutable Mutex mutex_;
  int64_t now_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t next_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> tasks_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_TIMER_H_
