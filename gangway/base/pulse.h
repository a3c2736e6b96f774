// A periodic callback on an event loop, to send heartbeats and to watch those of peers. It reports
// a stall of its own process (stopped, or starved of CPU): heartbeats may then wait unread, so no
// peer may be called silent.
//
// Threading: created on any thread; callbacks run on the loop. Destroyed on the loop, or after the
// loop has stopped; no callback runs after that.
#ifndef GANGWAY_BASE_PULSE_H_
#define GANGWAY_BASE_PULSE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"

namespace gangway {

class Pulse {
 public:
  using OnBeat = std::function<void(Clock::time_point now, bool stood_still)>;

  static constexpr std::chrono::milliseconds kInterval{500};
  static constexpr std::chrono::milliseconds kStill{1000};  // a beat this late means a stall

  Pulse(EventLoop* loop, OnBeat on_beat)
      : state_(std::make_shared<State>(State{.loop = loop, .on_beat = std::move(on_beat)})) {
    loop->Post([state = state_] { Beat(state); });
  }
  ~Pulse() { state_->over = true; }
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
    const bool still = !first && now - state->last > kInterval + kStill;
    state->last = now;
    state->on_beat(now, still);  // may destroy the pulse
    if (!state->over) state->loop->PostAt(now + kInterval, [state] { Beat(state); });
  }

  const std::shared_ptr<State> state_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_PULSE_H_
