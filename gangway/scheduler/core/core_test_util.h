// For tests of single parts of an island: two workers, worker 0 with devices 0 and 1, worker 1 with devices 2 and 3.
#ifndef GANGWAY_SCHEDULER_CORE_CORE_TEST_UTIL_H_
#define GANGWAY_SCHEDULER_CORE_CORE_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/layouts.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

inline const Time kStart = Time() + std::chrono::hours(1);

inline std::vector<WorkerSpec> TwoWorkers() {
  return {{.devices = {DeviceId(0), DeviceId(1)}, .last_incarnation = Incarnation(5)},
          {.devices = {DeviceId(2), DeviceId(3)}, .last_incarnation = {}}};
}

inline wire::WorkerRegistration Registration(uint32_t worker, uint64_t incarnation) {
  wire::WorkerRegistration registration;
  registration.set_index(worker);
  registration.set_incarnation(incarnation);
  return registration;
}

// Both workers are up.
class TwoWorkerFleet {
 public:
  TwoWorkerFleet() {
    fleet.Start(Registration(0, 11), 0);
    fleet.Start(Registration(1, 21), 0);
  }
  LayoutRef LayoutOf(const std::vector<uint32_t>& devices) const { return layouts.Of(devices); }
  Actions Take() {
    Actions actions;
    outbox.TakeInto(actions);
    return actions;
  }

  Fleet fleet{0, TwoWorkers()};
  Layouts layouts{fleet};
  Outbox outbox{fleet};
};

inline std::vector<IslandDevice> DevicesOf(const std::vector<uint32_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

// The items, each with every worker that gets it, in order.
inline std::vector<std::pair<uint32_t, wire::IslandItem>> ByWorker(const Actions& actions) {
  std::vector<std::pair<uint32_t, wire::IslandItem>> items;
  for (const auto& [workers, item] : actions.to_workers)
    for (const uint32_t worker : workers) items.emplace_back(worker, item);
  return items;
}

// Of the items for the worker, in order, those for which `has` holds.
inline std::vector<wire::IslandItem> ItemsFor(
    uint32_t worker, const Actions& actions,
    const std::function<bool(const wire::IslandItem&)>& has) {
  std::vector<wire::IslandItem> items;
  for (const auto& [to, item] : ByWorker(actions))
    if (to == worker && has(item)) items.push_back(item);
  return items;
}

// A launch on these devices, as it comes.
inline NodeState LaunchNode(uint64_t ordinal, const std::vector<uint32_t>& devices,
                            const TwoWorkerFleet& two) {
  NodeState node;
  node.ordinal = Ordinal(ordinal);
  node.session = SessionId(7);
  node.part.emplace<LaunchPart>();
  node.layout = two.LayoutOf(devices);
  node.workers = node.layout->workers;
  node.open_workers = node.workers;
  return node;
}

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_CORE_TEST_UTIL_H_
