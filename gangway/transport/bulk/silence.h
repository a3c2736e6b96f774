// Silence: when did the other end of a link last show life, is something awaited from it, and for too long? Looks: for
// how long did this process not look?
//
// Neither has a clock: every call takes the time. Not thread-safe.
#ifndef GANGWAY_TRANSPORT_BULK_SILENCE_H_
#define GANGWAY_TRANSPORT_BULK_SILENCE_H_

#include <algorithm>
#include <optional>
#include <utility>

#include "gangway/base/clock.h"

namespace gangway::transport {

class Silence {
 public:
  // A frame, or progress of what is queued.
  void Hear(Clock::time_point now) { heard_ = std::max(heard_, now); }

  // This process stood still until now, and has not read what came: that time is no silence.
  void Skip(Clock::duration stood_still, Clock::time_point now) {
    heard_ = std::min(now, heard_ + stood_still);
    if (awaited_since_) awaited_since_ = std::min(now, *awaited_since_ + stood_still);
  }

  // Something is awaited from now on, unless something already was.
  void Await(Clock::time_point now) {
    if (!awaited_since_) awaited_since_ = now;
  }
  void Rest() { awaited_since_.reset(); }
  bool awaits() const { return awaited_since_.has_value(); }

  // Something has been awaited for `limit` without a sign of life (TM-1).
  bool IsTooLong(Clock::time_point now, Clock::duration limit) const {
    return awaits() && now - std::max(heard_, *awaited_since_) >= limit;
  }

 private:
  Clock::time_point heard_ = Clock::time_point::min();
  std::optional<Clock::time_point> awaited_since_;
};

// Of an owner that looks at its links at an interval, while it awaits something.
class Looks {
 public:
  // To be called at each look: the time since the last one, if it is much longer than the interval. The process stood
  // still, or awaited nothing, so what came lies unread (Silence::Skip).
  Clock::duration StoodStill(Clock::time_point now, Clock::duration interval) {
    const Clock::duration since = now - std::exchange(last_, now);
    return since > 2 * interval ? since : Clock::duration();
  }

 private:
  Clock::time_point last_{};
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_SILENCE_H_
