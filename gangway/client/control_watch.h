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

  explicit ControlWatch(std::chrono::milliseconds silence_max) : silence_max_(silence_max) {}

  void Heard() { asked_ = false; }

  // To be called at intervals while answers are awaited. `queued`: bytes that the link has still to send, behind which
  // a question waits; less of them than before is a sign of life, too. `stood_still`: what came before is unread.
  Verdict Look(Clock::time_point now, size_t queued, bool stood_still) {
    if (queued < std::exchange(queued_, queued)) Heard();
    if (!asked_) {
      asked_ = true;
      since_ = now;
      return Verdict::kAsk;
    }
    if (stood_still) since_ = now;
    return now - since_ < silence_max_ ? Verdict::kWait : Verdict::kSilent;
  }

 private:
  const std::chrono::milliseconds silence_max_;
  bool asked_ = false;  // and nothing came since
  Clock::time_point since_;
  size_t queued_ = 0;  // at the last Look
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONTROL_WATCH_H_
