// When a child process that died is started again: at once after a long life, in growing intervals
// after short ones, and not any more after too many short ones in a row. One that ends because what
// it serves is gone is not to blame. Pure.
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
  // With this exit status a worker says that its scheduler is gone, a scheduler its controller.
  static constexpr int kBlameless = 75;

  // How long to wait before the next start; nothing: give up. `exit_status`: -1 after a signal.
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
