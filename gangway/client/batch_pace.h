// BatchPace: how long the operations that a session's callers append wait for others to be sent with. Each frame costs
// both ends a system call and the controller a wake: a caller sends a few operations at once, those of a burst travel
// together, and a caller that is far ahead of what it waits for sends none itself.
//
// It keeps when callers appended, how many operations they may still send at once, and how many they appended since one
// of them waited. Pure: the caller says what time it is. Not thread-safe. It cannot fail.
#ifndef GANGWAY_CLIENT_BATCH_PACE_H_
#define GANGWAY_CLIENT_BATCH_PACE_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "gangway/base/clock.h"

namespace gangway::client {

// kLater: behind another such operation it waits, since nothing is done with it alone, and more will come. kBatched: as
// part of a burst it waits, for longer while the caller is far ahead, since LookFor sends what something waits for.
// kAnswered: as part of a burst it waits, but not for longer, since its caller waits for an answer.
enum class Urgency { kLater, kBatched, kAnswered, kAtOnce };

class BatchPace {
 public:
  // Callers may send this many operations at once, and one more in each interval.
  static constexpr int kSendsAtOnce = 4;
  static constexpr std::chrono::microseconds kSendInterval{100};
  static constexpr std::chrono::microseconds kLaterInterval{1000};
  // A caller is far ahead once it has submitted kAheadOps operations without a wait, and while each comes within
  // kAheadInterval of the one before. This interval is well below the time after which the controller takes a session
  // for idle, and tells it of its ends.
  static constexpr uint64_t kAheadOps = 16;
  static constexpr std::chrono::microseconds kAheadInterval{300};

  // What is known of the session when an operation is appended.
  struct Context {
    bool holds_operations = false;  // earlier ones wait already
    bool looks_for_all = false;     // something looks for every end
  };

  // An operation was appended that ends.
  void NoteOperation() { ++unawaited_ops_; }
  // Something waits for one of them.
  void NoteWait() { unawaited_ops_ = 0; }

  // How long what was appended waits for others to be sent with; none: not at all.
  std::optional<std::chrono::microseconds> WaitOf(Urgency urgency, Clock::time_point now,
                                                  Context context);

 private:
  bool IsFarAhead(Clock::time_point now, bool looks_for_all);
  bool IsBurst(Clock::time_point now);
  bool FollowsAnother(Clock::time_point now);

  int sends_left_ = 0;  // at once, by callers
  Clock::time_point refilled_;
  Clock::time_point follows_until_;  // those that may wait
  uint64_t unawaited_ops_ = 0;       // since something waited for one
  Clock::time_point ahead_until_;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_BATCH_PACE_H_
