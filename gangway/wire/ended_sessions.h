// The sessions that have ended, as runs of numbers. A data token stays right for as long as its controller lives. So
// for a session that a worker has forgotten, a client could open a stream which no end of a session closes. Numbers are
// given in order, so there are about as many runs as living sessions. Beyond kRunsMax, the oldest are forgotten. Not
// thread-safe.
#ifndef GANGWAY_WIRE_ENDED_SESSIONS_H_
#define GANGWAY_WIRE_ENDED_SESSIONS_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

class EndedSessions {
 public:
  static constexpr size_t kRunsMax = size_t{1} << 16;
  using Runs = google::protobuf::RepeatedPtrField<SessionRun>;

  void Insert(SessionId session) { InsertRun(session.number(), session.number()); }
  void Insert(const Runs& runs) {
    for (const SessionRun& run : runs) InsertRun(run.first(), run.last());
  }

  bool Contains(SessionId session) const {
    const auto after = runs_.upper_bound(session.number());
    return after != runs_.begin() && session.number() <= std::prev(after)->second;
  }

  size_t run_count() const { return runs_.size(); }

  void AppendTo(Runs& runs) const {
    for (const auto& [first, last] : runs_) {
      SessionRun& run = *runs.Add();
      run.set_first(first);
      run.set_last(last);
    }
  }

 private:
  void InsertRun(uint64_t first, uint64_t last) {
    first = std::max<uint64_t>(first, 1);  // no session has the number 0
    if (first > last) return;
    auto next = runs_.upper_bound(first);
    if (next != runs_.begin() && std::prev(next)->second >= first - 1) --next;
    while (next != runs_.end() && next->first - 1 <= last) {  // they overlap, or touch
      first = std::min(first, next->first);
      last = std::max(last, next->second);
      next = runs_.erase(next);
    }
    runs_.emplace(first, last);
    if (runs_.size() > kRunsMax) runs_.erase(runs_.begin());
  }

  std::map<uint64_t, uint64_t> runs_;  // from the first number to the last
};

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_ENDED_SESSIONS_H_
