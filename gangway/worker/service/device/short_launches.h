// Which launches the worker's loop runs by itself instead of handing them to the threads of their devices. A launch
// that is over in microseconds costs more to hand over than to run: two threads wake, the device's and then the loop,
// which learns of its end. But nothing may hold up the loop, so it runs only what has been short again and again.
//
// LearnedTime: thread-safe. ShortLaunches: of the loop. Neither reads a clock.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_SHORT_LAUNCHES_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_SHORT_LAUNCHES_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gangway/base/mutex.h"

namespace gangway::worker {

// A launch is short if all its runs on this worker take less, one after the other.
inline constexpr std::chrono::nanoseconds kShortLaunch = std::chrono::microseconds(50);
// What the launches of one round of the loop may take together. The others go to the devices' threads, which run while
// the loop reads its next messages.
inline constexpr std::chrono::nanoseconds kShortRound = std::chrono::microseconds(100);
// Likewise, of each of the simulated workers that share a loop: a whole window of launches. Their devices share a few
// threads of the same cores, which would take as long for them.
inline constexpr std::chrono::nanoseconds kShortSharedRound = std::chrono::milliseconds(1);
// So many runs of a program must have been short before the loop runs it. The first one is slower than the others.
inline constexpr int kShortRunsFirst = 8;

// How long a run of one program takes on one device. A run that is not short makes the program long at once, and it
// stays long until later runs have made up for it, each short one for kShortLaunch of it: so the loop never spends more
// than twice kShortLaunch per run, however unsteady a program is.
class LearnedTime {
 public:
  // A run that began and ended within one call of the device runtime took this long.
  void Note(std::chrono::nanoseconds ran) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    mean_ = mean_ ? *mean_ + (ran - *mean_) / kWeight : ran;
    owed_ = ran < kShortLaunch ? owed_ - std::min(owed_, kShortLaunch) : owed_ + ran;
  }

  // The mean, in which later runs weigh more; nothing while the program is long, or too little is known.
  std::optional<std::chrono::nanoseconds> IfShort() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return owed_ == std::chrono::nanoseconds(0) ? mean_ : std::nullopt;
  }

 private:
  static constexpr int kWeight = 8;

  mutable Mutex mutex_;
  std::optional<std::chrono::nanoseconds> mean_ GANGWAY_GUARDED_BY(mutex_);
  // The time of runs that were not short, less what was made up for.
  std::chrono::nanoseconds owed_ GANGWAY_GUARDED_BY(mutex_) = kShortRunsFirst * kShortLaunch;
};

class ShortLaunches {
 public:
  // `round_max`: what the launches of one round may take together.
  explicit ShortLaunches(std::chrono::nanoseconds round_max = kShortRound)
      : round_max_(round_max), left_(round_max) {}

  // A round of the loop, by its number, has its own time.
  void BeginRound(uint64_t round) {
    if (round != round_) left_ = round_max_;
    round_ = round;
  }

  // Whether the loop may run a program whose runs take `learned` on `devices` of its devices, one after the other.
  bool MayRun(std::optional<std::chrono::nanoseconds> learned, size_t devices) const {
    if (!learned || devices > kDevicesMax) return false;
    const std::chrono::nanoseconds all = *learned * static_cast<int64_t>(devices);
    return all < kShortLaunch && all <= left_;
  }
  // It has, and this is what it took.
  void Spend(std::chrono::nanoseconds took) { left_ -= std::min(left_, took); }

 private:
  // As many runs take longer, whatever was learned.
  static constexpr size_t kDevicesMax = 16;

  const std::chrono::nanoseconds round_max_;
  uint64_t round_ = 0;
  std::chrono::nanoseconds left_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_SHORT_LAUNCHES_H_
