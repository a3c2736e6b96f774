// Look: a moment in which a thread that is about to sleep tries again instead, since to wake it takes as long as a
// short call. It gives its core to other threads meanwhile. After a look in vain, or one that lost its core, a growing
// number of the thread's next looks is left out, so that a busy host and a thread that waits long pay nothing.
//
// Threading: one thread.
#ifndef GANGWAY_BASE_LOOK_H_
#define GANGWAY_BASE_LOOK_H_

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "gangway/base/clock.h"

namespace gangway {

class Look {
 public:
  static constexpr std::chrono::microseconds kMax{100};

  // Begins a look, or leaves it out.
  Look() {
    if (++left_out_ < 1 << vain_) return;
    left_out_ = 0;
    until_ = Clock::now() + kMax;
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
  ~Look() {
    if (until_ == Clock::time_point()) return;
    const bool in_time = found_ && Clock::now() < until_;
    vain_ = in_time ? 0 : std::min(vain_ + 1, kVainMax);
  }

  // Lets other threads run; whether to try again.
  bool Again() {
    if (over_ || until_ == Clock::time_point()) return false;
    sched_yield();
    over_ = Clock::now() >= until_;
    return !over_;
  }
  // What the thread looks for has come.
  void Found() { found_ = true; }

 private:
  static constexpr int kVainMax = 6;

  static inline thread_local constinit int vain_ = 0;      // in a row
  static inline thread_local constinit int left_out_ = 0;  // since the last

  Clock::time_point until_;  // zero: left out
  bool over_ = false;
  bool found_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_LOOK_H_
