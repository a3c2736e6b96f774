// When a child process that died is started again: at once after a long life, in growing intervals
// after short ones, and not any more after too many short ones in a row. Pure.
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

  // How long to wait before the next start; nothing: give up.
  std::optional<Millis> OnDeath(Millis lived) {
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
