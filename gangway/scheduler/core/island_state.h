// All that an island's scheduler keeps: one class for each kind of record. A class uses only those above it here, and
// none of them knows the island. Code that only looks takes this as const.
#ifndef GANGWAY_SCHEDULER_CORE_ISLAND_STATE_H_
#define GANGWAY_SCHEDULER_CORE_ISLAND_STATE_H_

#include <utility>

#include "gangway/scheduler/core/admission.h"
#include "gangway/scheduler/core/books.h"
#include "gangway/scheduler/core/callback_holds.h"
#include "gangway/scheduler/core/deadlocks.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/executables.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/held_back.h"
#include "gangway/scheduler/core/introductions.h"
#include "gangway/scheduler/core/layouts.h"
#include "gangway/scheduler/core/members.h"
#include "gangway/scheduler/core/nodes.h"
#include "gangway/scheduler/core/orphans.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/scheduler/core/put_room.h"
#include "gangway/scheduler/core/storages.h"
#include "gangway/scheduler/core/waits.h"

namespace gangway::scheduler {

struct IslandState {
  explicit IslandState(IslandConfig island_config) : config(std::move(island_config)) {}
  IslandState(const IslandState&) = delete;
  IslandState& operator=(const IslandState&) = delete;

  const IslandConfig config;
  Fleet fleet{config.island, config.workers};
  Layouts layouts{fleet};
  Outbox outbox{fleet};
  Books books{fleet.device_count(), config.budget_bytes};
  Members members{fleet};
  Introductions introductions{fleet, outbox};
  Executables executables{fleet, layouts, introductions, outbox};
  Storages storages{fleet, books, outbox};
  Nodes nodes;
  HeldBack held_back;
  PutRoom put_room{fleet.worker_count(), config.put_cost_max};
  Waits waits{config};
  Admission admission{fleet, books, config.window};
  Deadlocks deadlocks{fleet, outbox};
  Orphans orphans{fleet.device_count(), config.orphan_limit};
  CallbackHolds callback_holds{config.callback_hold_max};
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ISLAND_STATE_H_
