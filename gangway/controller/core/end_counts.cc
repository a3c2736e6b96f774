// Implementation of end_counts.h.
#include "gangway/controller/core/end_counts.h"

#include <algorithm>

namespace gangway::controller {

int EndCounts::Add(const std::string& suspect, Time now) {
  if (memory_.count() == 0 || suspects_max_ == 0) return 0;
  Forget(now);
  if (!suspects_.contains(suspect) && suspects_.size() >= suspects_max_) {
    suspects_.erase(std::ranges::min_element(suspects_, {},
                                             [](const auto& entry) { return entry.second.last; }));
  }
  Ends& ends = suspects_[suspect];
  ends.last = now;
  return ++ends.count;
}

void EndCounts::TakeBack(const std::string& suspect) {
  const auto ends = suspects_.find(suspect);
  if (ends != suspects_.end() && --ends->second.count == 0) suspects_.erase(ends);
}

int EndCounts::CountOf(const std::string& suspect, Time now) const {
  const auto ends = suspects_.find(suspect);
  return ends == suspects_.end() || IsOld(ends->second, now) ? 0 : ends->second.count;
}

Time EndCounts::LastOf(const std::string& suspect) const {
  const auto ends = suspects_.find(suspect);
  return ends == suspects_.end() ? Time() : ends->second.last;
}

bool EndCounts::MayKnow(std::string_view prefix) const {
  const auto first = suspects_.lower_bound(prefix);
  return first != suspects_.end() && std::string_view(first->first).starts_with(prefix);
}

void EndCounts::Forget(Time now) {
  std::erase_if(suspects_, [&](const auto& entry) { return IsOld(entry.second, now); });
}

}  // namespace gangway::controller
