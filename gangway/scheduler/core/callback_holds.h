// For how long the host callbacks of each session have held devices that other sessions wait for. Pure data; not
// thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_CALLBACK_HOLDS_H_
#define GANGWAY_SCHEDULER_CORE_CALLBACK_HOLDS_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"

namespace gangway::scheduler {

class CallbackHolds {
 public:
  explicit CallbackHolds(std::chrono::milliseconds limit) : limit_(limit) {}

  // A callback of the session holds a device at this time. Devices and workers tell of one session at different times,
  // and its time counts once. Time that passed without a hold counts against it. True: it has held for the limit.
  bool Note(SessionId session, Time now) {
    Hold& hold = holds_.try_emplace(session, Hold{{}, now}).first->second;
    const Time::duration passed = now - std::exchange(hold.last, now);
    hold.held = passed <= kGapMax ? hold.held + passed
                                  : std::max(hold.held - passed, Time::duration::zero());
    return hold.held >= limit_;
  }

  void EndSession(SessionId session) { holds_.erase(session); }

 private:
  // Longer than between two heartbeats: the device was free in between.
  static constexpr std::chrono::milliseconds kGapMax{1500};
  struct Hold {
    Time::duration held{};
    Time last;
  };

  const std::chrono::milliseconds limit_;
  std::map<SessionId, Hold> holds_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_CALLBACK_HOLDS_H_
