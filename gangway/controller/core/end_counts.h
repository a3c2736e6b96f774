// How often each of several things has ended a process. A thing is forgotten `memory` after its last end, and the one
// whose last end is the oldest when there are more than `things_max` (TM-2). Pure.
#ifndef GANGWAY_CONTROLLER_CORE_END_COUNTS_H_
#define GANGWAY_CONTROLLER_CORE_END_COUNTS_H_

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace gangway::controller {

using Time = std::chrono::steady_clock::time_point;

class EndCounts {
 public:
  // A `memory` of 0 remembers nothing.
  EndCounts(std::chrono::milliseconds memory, size_t things_max)
      : memory_(memory), things_max_(things_max) {}

  // Returns how many ends this makes.
  int Add(const std::string& thing, Time now);
  // One end less.
  void TakeBack(const std::string& thing);
  // Whether it was known.
  bool Erase(const std::string& thing) { return things_.erase(thing) > 0; }

  int CountOf(const std::string& thing, Time now) const;
  // When it ended one last; long ago, if it is not known.
  Time LastOf(const std::string& thing) const;
  // Whether a thing whose name begins like this may be known.
  bool MayKnow(std::string_view prefix) const;
  bool empty() const { return things_.empty(); }

 private:
  struct Ends {
    int count = 0;
    Time last;
  };
  void Forget(Time now);
  bool IsOld(const Ends& ends, Time now) const { return now - ends.last >= memory_; }

  const std::chrono::milliseconds memory_;
  const size_t things_max_;
  std::map<std::string, Ends, std::less<>> things_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_END_COUNTS_H_
