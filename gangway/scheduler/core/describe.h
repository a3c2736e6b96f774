// What a node's message says of the node. Only looks. Messages need not be consistent: a node that cannot run gets a
// failure, and whatever it writes is named all the same, so that the failure spoils it (ER-1).
#ifndef GANGWAY_SCHEDULER_CORE_DESCRIBE_H_
#define GANGWAY_SCHEDULER_CORE_DESCRIBE_H_

#include <cstdint>
#include <vector>

#include "gangway/scheduler/core/island_state.h"
#include "gangway/scheduler/core/layouts.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

struct Description {
  NodeState node;  // as it comes; nothing waits for it, and it waits for nothing
  LayoutRef results = Layouts::Empty();  // where all of node.writes are
  std::vector<uint64_t> result_bytes;    // of a shard of each of node.writes
  wire::FailureRef failure;              // why it cannot run; null: nothing is wrong with it alone
};

Description Describe(const wire::Node& message, const IslandState& island, Time now);

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_DESCRIBE_H_
