// Decides when a dead child process is restarted: at once after a long life, and after growing delays
// of at most kDelayMax if it died soon after its start. Too many short lives in a row are told apart:
// a cluster that is starting then gives up. A process that ends because its scheduler or controller
// is gone does not count. Pure.
#ifndef GANGWAY_CLI_RESTART_POLICY_H_
#define GANGWAY_CLI_RESTART_POLICY_H_

#include <algorithm>
#include <chrono>
#include <optional>

namespace gangway::cli {

class RestartPolicy {
 public:
  using Millis = std::chrono::milliseconds;
  static constexpr Millis kShortLife{10000};
  static constexpr Millis kDelayFirst{100};
  static constexpr Millis kDelayMax{5000};
  static constexpr int kShortLivesMax = 5;  // in a row
  // The exit status of a worker whose scheduler, or of a scheduler whose controller, is gone.
  static constexpr int kBlameless = 75;
  // That of a process whose next start would fail as this one did (base/lasting_error.h).
  static constexpr int kHopeless = 78;

  // The delay before the next start; nullopt: too many short lives. `exit_status`: -1 after a signal.
  std::optional<Millis> OnDeath(Millis lived, int exit_status) {
    if (exit_status == kBlameless) return lived < kShortLife ? kDelayFirst : Millis{0};
    short_lives_ = lived < kShortLife ? short_lives_ + 1 : 0;
    if (short_lives_ >= kShortLivesMax) return std::nullopt;
    if (short_lives_ <= 1) return Millis{0};
    return std::min(kDelayMax, kDelayFirst * (1 << (short_lives_ - 2)));
  }

 private:
  int short_lives_ = 0;
};

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_RESTART_POLICY_H_
