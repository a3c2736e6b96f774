// Time for the simulated device: the machine's, or a virtual one that a test moves. Thread-safe.
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
  // Runs `task` once the time is `micros` or later; in the order of times, then of calls. Never
  // inline.
  virtual void At(int64_t micros, std::function<void()> task) = 0;
};

// The machine's steady clock. Tasks of all timers of the process run on one thread that is never
// joined, so that a task may drop the last reference to anything.
class RealSimTimer final : public SimTimer {
 public:
  int64_t NowMicros() const override;
  void At(int64_t micros, std::function<void()> task) override;
};

// Stands still until Advance, which runs the tasks in its caller's thread.
class VirtualSimTimer final : public SimTimer {
 public:
  int64_t NowMicros() const override;
  void At(int64_t micros, std::function<void()> task) override;

  // Moves to now + `micros`, running every task due on the way, each at its own time, also those
  // that tasks add.
  void Advance(int64_t micros);
  // Moves from task to task until none is left or `limit_micros` have passed. Returns the time that
  // passed.
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
