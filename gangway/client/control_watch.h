// Decides whether the controller's process still answers, while the client awaits answers of it. The client asks it on
// the control link for a sign of life, which any frame is.
//
// Threading: none of its own; the client's loop uses it. Failure: none.
#ifndef GANGWAY_CLIENT_CONTROL_WATCH_H_
#define GANGWAY_CLIENT_CONTROL_WATCH_H_

#include <chrono>
#include <cstddef>
#include <utility>

#include "gangway/base/clock.h"

namespace gangway::client {

class ControlWatch {
 public:
  enum class Verdict { kWait, kAsk, kSilent };

  // `interval`: of the looks.
  ControlWatch(std::chrono::milliseconds silence_max, std::chrono::milliseconds interval)
      : silence_max_(silence_max), interval_(interval) {}

  void Heard() { asked_ = false; }

  // To be called every `interval` while answers are awaited. A look that is late by more than an interval follows a
  // time in which this process stood still, and what came then is unread: that time is no silence. `queued`: bytes that
  // the link has still to send, behind which a question waits; less of them than before is a sign of life, too.
  Verdict Look(Clock::time_point now, size_t queued) {
    const Clock::duration unwatched = now - std::exchange(looked_, now);
    if (queued < std::exchange(queued_, queued)) Heard();
    if (!asked_) {
      asked_ = true;
      since_ = now;
      return Verdict::kAsk;
    }
    if (unwatched > 2 * interval_) since_ += unwatched;
    return now - since_ < silence_max_ ? Verdict::kWait : Verdict::kSilent;
  }

  // How long a question has had no answer, as far as the looks can tell; 0: none is open.
  Clock::duration silent_for(Clock::time_point now) const {
    return asked_ && now - looked_ <= 2 * interval_ ? now - since_ : Clock::duration();
  }

 private:
  const std::chrono::milliseconds silence_max_;
  const std::chrono::milliseconds interval_;
  bool asked_ = false;  // and nothing came since
  Clock::time_point since_;
  Clock::time_point looked_;
  size_t queued_ = 0;  // at the last Look
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONTROL_WATCH_H_
