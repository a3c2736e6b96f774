// Implementation of end_counts.h.
#include "gangway/controller/core/end_counts.h"

#include <algorithm>

namespace gangway::controller {

int EndCounts::Add(const std::string& thing, Time now) {
  if (memory_.count() == 0 || things_max_ == 0) return 0;
  Forget(now);
  if (!things_.contains(thing) && things_.size() >= things_max_) {
    things_.erase(
        std::ranges::min_element(things_, {}, [](const auto& entry) { return entry.second.last; }));
  }
  Ends& ends = things_[thing];
  ends.last = now;
  return ++ends.count;
}

void EndCounts::TakeBack(const std::string& thing) {
  const auto ends = things_.find(thing);
  if (ends != things_.end() && --ends->second.count == 0) things_.erase(ends);
}

int EndCounts::CountOf(const std::string& thing, Time now) const {
  const auto ends = things_.find(thing);
  return ends == things_.end() || IsOld(ends->second, now) ? 0 : ends->second.count;
}

Time EndCounts::LastOf(const std::string& thing) const {
  const auto ends = things_.find(thing);
  return ends == things_.end() ? Time() : ends->second.last;
}

bool EndCounts::MayKnow(std::string_view prefix) const {
  const auto first = things_.lower_bound(prefix);
  return first != things_.end() && std::string_view(first->first).starts_with(prefix);
}

void EndCounts::Forget(Time now) {
  std::erase_if(things_, [&](const auto& entry) { return IsOld(entry.second, now); });
}

}  // namespace gangway::controller
