// LateEnds: the ends of a worker's nodes on their way to its loop. What hurries goes at once, with all that is held.
// The others are held until so many have come that it pays to wake the loop, and the head behind it, or for kHoldMax.
// Whatever else wakes the loop meanwhile leaves them: the reports of each round wake the head, and what that releases
// wakes the loop again, so that a gang would cost a round of both whenever it finds the other one awake.
//
// Thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"

namespace gangway::worker {

class LateEnds : public std::enable_shared_from_this<LateEnds> {
 public:
  // Half of what the scheduler lets a device have ahead, so that it is never left without work.
  static constexpr size_t kMax = 8;
  static constexpr std::chrono::milliseconds kHoldMax{3};

  // `loop` outlives this.
  explicit LateEnds(EventLoop* loop, Clock::duration hold_max = kHoldMax)
      : loop_(loop), hold_max_(hold_max) {}

  // Runs `end` on the loop. `hurries`: the node has failed, or its devices may soon have nothing to do. The ordinals at
  // which all go are the same on all workers, so that the parts of a gang are told together.
  void Add(Ordinal ordinal, bool hurries, std::function<void()> end) GANGWAY_EXCLUDES(mutex_);

 private:
  void HoldLocked() GANGWAY_REQUIRES(mutex_);
  void SetTimerLocked() GANGWAY_REQUIRES(mutex_);
  void DropTimer() GANGWAY_EXCLUDES(mutex_);
  void OnTimer(uint64_t setting) GANGWAY_EXCLUDES(mutex_);

  EventLoop* const loop_;
  const Clock::duration hold_max_;
  Mutex mutex_;
  std::vector<std::function<void()>> held_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> due_ GANGWAY_GUARDED_BY(mutex_);  // when the first of them goes
  std::optional<uint64_t> timer_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t timer_settings_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_
