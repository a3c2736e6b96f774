// Implementation of waits.h.
#include "gangway/scheduler/core/waits.h"

namespace gangway::scheduler {

Waits::Waits(const IslandConfig& config) {
  Of(WaitFor::kMemory).limit = config.memory_wait_max;
  Of(WaitFor::kBytes).limit = config.upload_wait_max;
  Of(WaitFor::kWorkers).limit = config.worker_wait_max;
}

void Waits::Begin(WaitFor what, Ordinal ordinal, Time now) {
  if (Of(what).since.try_emplace(ordinal, now).second) Of(what).by_time.emplace(now, ordinal);
}

void Waits::Restart(WaitFor what, Ordinal ordinal, Time now) {
  if (End(what, ordinal)) Begin(what, ordinal, now);
}

bool Waits::End(WaitFor what, Ordinal ordinal) {
  Kind& kind = Of(what);
  auto found = kind.since.find(ordinal);
  if (found == kind.since.end()) return false;
  kind.by_time.erase({found->second, ordinal});
  kind.since.erase(found);
  return true;
}

std::optional<Time> Waits::Since(WaitFor what, Ordinal ordinal) const {
  auto found = Of(what).since.find(ordinal);
  return found == Of(what).since.end() ? std::nullopt : std::optional<Time>(found->second);
}

std::vector<Ordinal> Waits::Due(WaitFor what, Time now) const {
  const Kind& kind = Of(what);
  std::vector<Ordinal> due;
  for (const auto& [since, ordinal] : kind.by_time) {
    if (now < since + kind.limit) break;
    due.push_back(ordinal);
  }
  return due;
}

std::optional<Time> Waits::next_deadline() const {
  std::optional<Time> next;
  for (const Kind& kind : kinds_) {
    if (kind.by_time.empty()) continue;
    const Time deadline = kind.by_time.begin()->first + kind.limit;
    if (!next || deadline < *next) next = deadline;
  }
  return next;
}

}  // namespace gangway::scheduler
