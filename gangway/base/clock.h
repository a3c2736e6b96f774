// The time that deadlines and heartbeats are counted in. Product code reads no other clock, so that a World can stand
// in for it.
#ifndef GANGWAY_BASE_CLOCK_H_
#define GANGWAY_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "gangway/base/world.h"

namespace gangway {

struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;

  static time_point now() {
    World* world = World::installed();
    return world == nullptr ? std::chrono::steady_clock::now() : world->Now();
  }
};

// Whole milliseconds from `since` until `now`; 0 if `since` is later. It is, where one thread reads the clock and then
// finds what another thread has begun after that: as an unsigned number, such a time would be an age.
inline uint64_t ElapsedMs(Clock::time_point since, Clock::time_point now) {
  if (now <= since) return 0;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count());
}

// The time of day, for people and for what outlives the process; no deadline is counted in it, but for those of gRPC,
// which wants it so.
struct WallClock {
  using time_point = std::chrono::system_clock::time_point;
  static time_point now() {
    World* world = World::installed();
    return world == nullptr ? std::chrono::system_clock::now()
                            : time_point(std::chrono::duration_cast<time_point::duration>(
                                  world->Now().time_since_epoch()));
  }
};

}  // namespace gangway

#endif  // GANGWAY_BASE_CLOCK_H_
