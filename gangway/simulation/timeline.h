// Virtual time for one simulated cluster: a queue of events, and streams that keep only their own order.
// Single-threaded; a run is a function of its seed.
#ifndef GANGWAY_SIMULATION_TIMELINE_H_
#define GANGWAY_SIMULATION_TIMELINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "gangway/simulation/random.h"

namespace gangway::simulation {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

constexpr Duration Microseconds(uint64_t count) { return std::chrono::microseconds(count); }
constexpr Duration Milliseconds(uint64_t count) { return std::chrono::milliseconds(count); }

class Timeline {
 public:
  Time now() const { return now_; }
  uint64_t event_count() const { return event_count_; }

  void At(Time when, std::function<void()> what) {
    queue_.push({std::max(when, now_), next_++, std::move(what)});
  }
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }

  // Runs the next event; false if none is left.
  bool RunNext() {
    if (queue_.empty()) return false;
    // The heap's top is const only to keep its order, which moving the closure out does not change.
    std::function<void()> what = std::move(const_cast<Entry&>(queue_.top()).what);
    now_ = queue_.top().when;
    queue_.pop();
    ++event_count_;
    what();
    return true;
  }

 private:
  struct Entry {
    Time when;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : number > other.number;  // earliest on top
    }
  };

  Time now_ = Time() + std::chrono::hours(1);
  uint64_t next_ = 0;
  uint64_t event_count_ = 0;
  std::priority_queue<Entry> queue_;
};

// Messages arrive in the order sent, each after a random delay; streams may overtake each other. A
// stream must outlive the timeline's last event.
template <typename T>
class Stream {
 public:
  Stream(Timeline* timeline, Random* random, Duration delay_max, std::function<void(T)> receive)
      : timeline_(timeline), random_(random), delay_max_(delay_max), receive_(std::move(receive)) {}

  void Send(T message) {
    uint64_t delay = random_->Below(static_cast<uint64_t>(delay_max_.count()) + 1);
    if (random_->Percent(2)) delay *= 20;  // sometimes a stream stalls
    last_ = std::max(last_, timeline_->now() + Duration(delay));
    timeline_->At(last_, [this, cut = cut_, message = std::move(message)]() mutable {
      if (cut == cut_) receive_(std::move(message));
    });
  }

  // Messages in flight are lost; later messages arrive.
  void Cut() { ++cut_; }

 private:
  Timeline* const timeline_;
  Random* const random_;
  const Duration delay_max_;
  const std::function<void(T)> receive_;
  Time last_{};
  uint64_t cut_ = 0;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_TIMELINE_H_
