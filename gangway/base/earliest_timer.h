// EarliestTimer: one timer of an event loop, for the earliest of the times that it was set to since it was due last. So
// many settings to ever earlier times leave one timer behind, and not one each.
//
// Threading: on the loop's thread; destroyed there or after the loop has stopped. Then it is due no longer.
#ifndef GANGWAY_BASE_EARLIEST_TIMER_H_
#define GANGWAY_BASE_EARLIEST_TIMER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"

namespace gangway {

class EarliestTimer {
 public:
  // `loop` outlives this. `due` may set it again.
  EarliestTimer(EventLoop* loop, std::function<void()> due)
      : loop_(loop), state_(std::make_shared<State>(State{.due = std::move(due)})) {}
  ~EarliestTimer() {
    if (state_->at) loop_->Cancel(state_->timer);
  }
  EarliestTimer(const EarliestTimer&) = delete;
  EarliestTimer& operator=(const EarliestTimer&) = delete;

  // Due at `at`, unless it is due before.
  void SetBy(Clock::time_point at) {
    if (state_->at && *state_->at <= at) return;
    if (state_->at) loop_->Cancel(state_->timer);
    state_->at = at;
    const uint64_t setting = ++state_->settings;
    state_->timer = loop_->PostAt(at, [weak = std::weak_ptr(state_), setting] {
      const std::shared_ptr<State> state = weak.lock();
      // An earlier setting, which was taken off the timers of the loop before it could be cancelled.
      if (state == nullptr || state->settings != setting) return;
      state->at.reset();
      state->due();
    });
  }

 private:
  struct State {
    std::function<void()> due;
    std::optional<Clock::time_point> at;
    uint64_t timer = 0;
    uint64_t settings = 0;
  };

  EventLoop* const loop_;
  const std::shared_ptr<State> state_;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_EARLIEST_TIMER_H_
