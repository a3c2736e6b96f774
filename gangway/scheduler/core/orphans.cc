// Implementation of orphans.h.
#include "gangway/scheduler/core/orphans.h"

namespace gangway::scheduler {
namespace {

constexpr std::chrono::milliseconds kLookInterval{250};

}  // namespace

void Orphans::Add(Ordinal launch, Time now) {
  if (orphans_.empty()) {
    since_.assign(since_.size(), std::nullopt);
    due_ = now;
  }
  orphans_.insert(launch);
}

std::optional<Time> Orphans::next_look() const {
  return orphans_.empty() ? std::nullopt : std::optional<Time>(due_);
}

std::vector<Orphans::Overdue> Orphans::Look(const std::vector<const NodeState*>& first, Time now) {
  due_ = now + kLookInterval;
  std::vector<Overdue> overdue;
  for (size_t device = 0; device < since_.size(); ++device) {
    std::optional<Time>& since = since_[device];
    if (first[device] == nullptr || !orphans_.contains(first[device]->ordinal)) {
      since.reset();
      continue;
    }
    if (!since) since = now;
    if (now - *since < limit_) continue;
    overdue.push_back({IslandDevice(static_cast<uint32_t>(device)), first[device], now - *since});
  }
  return overdue;
}

}  // namespace gangway::scheduler
