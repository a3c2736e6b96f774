// The beats of one end of a local link: what tells that the peer is silent, and that this end must not be. Each end
// looks every 15 s. One that has sent nothing since the last look sends an empty message, and a peer of which nothing
// has arrived for four looks (two, before its greeting) is lost, unless this end does not read.
//
// Threading: NoteSent and NoteReceived on any thread; all else on the IoThread.
#ifndef GANGWAY_TRANSPORT_LOCAL_BEATS_H_
#define GANGWAY_TRANSPORT_LOCAL_BEATS_H_

#include <atomic>
#include <chrono>

#include "gangway/base/clock.h"

namespace gangway::transport {

class Beats {
 public:
  explicit Beats(Clock::time_point now) : next_(After(now)) {}

  void NoteSent() { sent_.store(true, std::memory_order_relaxed); }
  void NoteReceived() { received_.store(true, std::memory_order_relaxed); }

  Clock::time_point next() const { return next_; }

  enum class Peer { kGreets, kGreeted };            // whether its greeting is still awaited
  enum class Reading { kGoesOn, kRests };           // whether bytes of the peer would be noted
  enum class Due { kNothing, kBeat, kPeerIsLost };  // what the look finds
  // Once next() has come.
  Due Look(Clock::time_point now, Peer peer, Reading reading) {
    next_ = After(now);
    const bool heard =
        received_.exchange(false, std::memory_order_relaxed) || reading == Reading::kRests;
    silent_looks_ = heard ? 0 : silent_looks_ + 1;
    const bool greets = peer == Peer::kGreets;
    if (silent_looks_ >= (greets ? kGreetingLooksMax : kSilentLooksMax)) return Due::kPeerIsLost;
    const bool is_silent = !greets && !sent_.exchange(false, std::memory_order_relaxed);
    return is_silent ? Due::kBeat : Due::kNothing;
  }

 private:
  static constexpr std::chrono::seconds kBetweenLooks{15};
  static constexpr int kSilentLooksMax = 4;
  static constexpr int kGreetingLooksMax = 2;

  // Whole seconds: the IoThread, which ticks all links whenever one of them is due, wakes for many of them at once.
  static Clock::time_point After(Clock::time_point now) {
    return std::chrono::floor<std::chrono::seconds>(now + kBetweenLooks);
  }

  std::atomic<bool> sent_{false};      // since the last look
  std::atomic<bool> received_{false};  // likewise
  int silent_looks_ = 0;
  Clock::time_point next_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_BEATS_H_
