// A periodic callback on an event loop, to send heartbeats and to watch those of peers. It reports for how long its own
// process stood still (stopped, or starved of CPU): heartbeats may then wait unread, so that time is no silence of a
// peer.
//
// Threading: created on any thread; callbacks run on the loop. Destroyed on the loop, or after the
// loop has stopped; no callback runs after that.
#ifndef GANGWAY_BASE_PULSE_H_
#define GANGWAY_BASE_PULSE_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"

namespace gangway {

class Pulse {
 public:
  // `stood_still`: since the last beat, if this one is so late; else zero.
  using OnBeat = std::function<void(Clock::time_point now, Clock::duration stood_still)>;

  static constexpr std::chrono::milliseconds kInterval{500};
  static constexpr std::chrono::milliseconds kStill{1000};  // a beat this late means a stall

  Pulse(EventLoop* loop, OnBeat on_beat)
      : state_(std::make_shared<State>(State{.loop = loop, .on_beat = std::move(on_beat)})) {
    loop->Post([state = state_] { Beat(state); });
  }
  ~Pulse() { state_->over = true; }

  // When a peer was heard last, without the time in which this process stood still.
  static Clock::time_point Later(Clock::time_point heard, Clock::duration stood_still,
                                 Clock::time_point now) {
    return std::min(now, heard + stood_still);
  }

  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  struct State {
    EventLoop* loop;
    OnBeat on_beat;
    Clock::time_point last{};
    bool over = false;
  };

  static void Beat(const std::shared_ptr<State>& state) {
    if (state->over) return;
    const auto now = Clock::now();
    const bool first = state->last == Clock::time_point();
    const Clock::duration since = first ? Clock::duration() : now - state->last;
    state->last = now;
    state->on_beat(
        now, since > kInterval + kStill ? since : Clock::duration());  // may destroy the pulse
    if (!state->over) state->loop->PostAt(now + kInterval, [state] { Beat(state); });
  }

  const std::shared_ptr<State> state_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_PULSE_H_
