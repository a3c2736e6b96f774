// Implementation of batch_pace.h.
#include "gangway/client/batch_pace.h"

#include <utility>

namespace gangway::client {

std::optional<std::chrono::microseconds> BatchPace::WaitOf(Urgency urgency, Clock::time_point now,
                                                           Context context) {
  if (urgency == Urgency::kAtOnce) return std::nullopt;
  if (urgency == Urgency::kLater && (FollowsAnother(now) || context.holds_operations))
    return kLaterInterval;
  if (urgency == Urgency::kBatched && IsFarAhead(now, context.looks_for_all)) return kAheadInterval;
  if (!IsBurst(now)) return std::nullopt;
  return urgency == Urgency::kLater ? kLaterInterval : kSendInterval;
}

// A script takes some 20 to 45 us for each call, and would send most of them on its own: it earns a send at once in
// each interval. While nothing waits for one of them, none is the worse for waiting longer. Of a session that looks for
// every end it is not known what it waits for.
bool BatchPace::IsFarAhead(Clock::time_point now, bool looks_for_all) {
  const bool follows = now < std::exchange(ahead_until_, now + kAheadInterval);
  return follows && unawaited_ops_ > kAheadOps && !looks_for_all;
}

bool BatchPace::IsBurst(Clock::time_point now) {
  const auto earned = (now - refilled_) / kSendInterval;
  if (sends_left_ + earned >= kSendsAtOnce) {
    sends_left_ = kSendsAtOnce;
    refilled_ = now;
  } else {
    sends_left_ += static_cast<int>(earned);
    refilled_ += earned * kSendInterval;
  }
  if (sends_left_ == 0) return true;
  --sends_left_;
  return false;
}

// A burst of operations that may wait lasts longer than those at once that a caller earns.
bool BatchPace::FollowsAnother(Clock::time_point now) {
  return now < std::exchange(follows_until_, now + kLaterInterval);
}

}  // namespace gangway::client
