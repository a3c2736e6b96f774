// Launches that no client waits for any more, since their session has ended or their gang was aborted, and for how long
// each device has had such a launch first. The device runtime cannot end them. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_ORPHANS_H_
#define GANGWAY_SCHEDULER_CORE_ORPHANS_H_

#include <chrono>
#include <optional>
#include <set>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/node.h"

namespace gangway::scheduler {

class Orphans {
 public:
  // An orphan that has held a device for the limit.
  struct Overdue {
    IslandDevice device;
    const NodeState* launch = nullptr;
    Time::duration held{};
  };

  Orphans(size_t device_count, std::chrono::milliseconds limit)
      : limit_(limit), since_(device_count) {}

  void Add(Ordinal launch, Time now);
  void Remove(Ordinal launch) { orphans_.erase(launch); }

  // When Look() is due; nullopt: there are none.
  std::optional<Time> next_look() const;
  bool IsDue(Time now) const { return !orphans_.empty() && now >= due_; }
  // `first`, by device: the first launch in the island's order that has not ended there, or null. Behind a launch of a
  // live session, an orphan holds nothing.
  std::vector<Overdue> Look(const std::vector<const NodeState*>& first, Time now);

 private:
  const std::chrono::milliseconds limit_;
  std::set<Ordinal> orphans_;
  std::vector<std::optional<Time>> since_;  // by device: since when an orphan is first there
  Time due_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ORPHANS_H_
