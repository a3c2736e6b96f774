// An island as it is now, for code that only looks: what the scheduler keeps, and when each worker was last heard.
#ifndef GANGWAY_SCHEDULER_CORE_VIEW_H_
#define GANGWAY_SCHEDULER_CORE_VIEW_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/island_state.h"

namespace gangway::scheduler {

struct View {
  const IslandState& island;
  Time now;
  const std::vector<Time>& heard;  // by worker: when its last message arrived; Time() = never

  static constexpr std::chrono::milliseconds kSilent{1500};  // three heartbeats

  // Of a worker that is up. A worker that `heard` does not know counts as heard.
  bool IsSilent(uint32_t worker) const {
    return worker < heard.size() && now - heard[worker] >= kSilent;
  }
  // How long ago `then` was, in milliseconds.
  uint64_t MsSince(Time then) const { return ToMs(now - then); }
  static uint64_t ToMs(Time::duration duration) {
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    return static_cast<uint64_t>(std::max<int64_t>(0, ms));
  }
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_VIEW_H_
