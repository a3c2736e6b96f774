// How often each suspect, a program or an owner, has ended a process. A suspect is forgotten `memory` after its last
// end, and the one whose last end is the oldest when there are more than `suspects_max` (TM-2). Pure.
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
  EndCounts(std::chrono::milliseconds memory, size_t suspects_max)
      : memory_(memory), suspects_max_(suspects_max) {}

  // Returns how many ends this makes.
  int Add(const std::string& suspect, Time now);
  // One end less.
  void TakeBack(const std::string& suspect);
  // Whether it was known.
  bool Erase(const std::string& suspect) { return suspects_.erase(suspect) > 0; }

  int CountOf(const std::string& suspect, Time now) const;
  // When it ended one last; long ago, if it is not known.
  Time LastOf(const std::string& suspect) const;
  // Whether a suspect whose name begins like this may be known.
  bool MayKnow(std::string_view prefix) const;
  bool empty() const { return suspects_.empty(); }

 private:
  struct Ends {
    int count = 0;
    Time last;
  };
  void Forget(Time now);
  bool IsOld(const Ends& ends, Time now) const { return now - ends.last >= memory_; }

  const std::chrono::milliseconds memory_;
  const size_t suspects_max_;
  std::map<std::string, Ends, std::less<>> suspects_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_END_COUNTS_H_
