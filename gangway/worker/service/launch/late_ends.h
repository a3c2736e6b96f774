// Which ends of nodes wake the worker's loop, so that the scheduler is told at once. The others are told with what
// wakes the loop next, at the latest after EventLoop::kSoon: then a worker with many short gangs wakes its loop, and
// the head, once for several of them. Thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_

#include <atomic>
#include <cstdint>

#include "gangway/base/ids.h"

namespace gangway::worker {

class LateEnds {
 public:
  // Half of what the scheduler lets a device have ahead, so that it is never left without work.
  static constexpr uint32_t kMax = 8;

  // `hurries`: the node has failed, or its devices may soon have nothing to do. The ordinals that wake are the same on
  // all workers, so that the parts of a gang are told together.
  bool Wakes(Ordinal ordinal, bool hurries) {
    const bool wakes = hurries || ordinal.number() % kMax == 0 ||
                       late_.fetch_add(1, std::memory_order_relaxed) + 1 >= kMax;
    if (wakes) late_.store(0, std::memory_order_relaxed);
    return wakes;
  }

 private:
  std::atomic<uint32_t> late_ = 0;  // since the last that woke the loop
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LATE_ENDS_H_
