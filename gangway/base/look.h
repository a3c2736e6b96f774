// Look: a moment in which a thread that is about to sleep tries again instead, since to wake it takes as long as a
// short call. Between the tries, other threads get its core. After a look in vain, or one that lost its core, a growing
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

// How many of its next tries a thread leaves out: none after one that was worth it, twice as many after each in vain.
class VainTries {
 public:
  // Whether this try is left out.
  bool LeavesOut() {
    if (++left_out_ < 1 << vain_) return true;
    left_out_ = 0;
    return false;
  }
  void Note(bool was_worth_it) { vain_ = was_worth_it ? 0 : std::min(vain_ + 1, kVainMax); }

 private:
  static constexpr int kVainMax = 6;

  int vain_ = 0;      // in a row
  int left_out_ = 0;  // since the last
};

class Look {
 public:
  static constexpr std::chrono::microseconds kMax{100};

  // Begins a look, or leaves it out.
  Look() {
    if (!tries_.LeavesOut()) until_ = Clock::now() + kMax;
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
  ~Look() {
    if (until_ == Clock::time_point()) return;
    tries_.Note(found_ && Clock::now() < until_);
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
  static inline thread_local constinit VainTries tries_;

  Clock::time_point until_;  // zero: left out
  bool over_ = false;
  bool found_ = false;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_LOOK_H_
