// Which launches the devices of an island have, in its order, and how they are named to people. Only looks. Each call
// costs time in proportion to the nodes of the island: for heartbeats, losses and questions, not for the hot path.
#ifndef GANGWAY_SCHEDULER_CORE_LAUNCHES_H_
#define GANGWAY_SCHEDULER_CORE_LAUNCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/island_state.h"
#include "gangway/scheduler/core/node.h"

namespace gangway::scheduler {

// Those that the worker has, in their order.
std::vector<const NodeState*> LaunchesOn(const Nodes& nodes, uint32_t worker);

// Those before `node` in the island's order, the earliest first: on a device, the first that has not ended runs.
std::vector<const NodeState*> LaunchesAhead(const Nodes& nodes, const NodeState& node);

// By device: the first launch in the island's order that has not ended there; null: none.
std::vector<const NodeState*> FirstLaunches(const IslandState& island);

// Whether other sessions' work waits for the device, which `node` has, for nothing but its turn.
bool OthersWait(const IslandState& island, const NodeState& node, IslandDevice device);

// "program jit_step at train.py:42 of session 7 (user alice)".
std::string OwnerText(const NodeState& launch);

// ", while its devices had ..."; empty if there are none.
std::string LaunchesText(const std::vector<const NodeState*>& launches);

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LAUNCHES_H_
