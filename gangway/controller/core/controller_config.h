// How a controller is set up (controller.h).
#ifndef GANGWAY_CONTROLLER_CORE_CONTROLLER_CONFIG_H_
#define GANGWAY_CONTROLLER_CORE_CONTROLLER_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/compile_queue.h"
#include "gangway/controller/core/executables.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct ControllerConfig {
  uint64_t epoch = 0;
  std::vector<wire::Worker> workers;   // the declared topology
  std::set<uint32_t> remote_islands;   // down until SchedulerUp; others always up
  uint64_t pending_nodes_max = 16384;  // per session (TM-2)
  CompileLimits compiles;
  BlameLimits blame;
  std::chrono::milliseconds scheduler_wait_max{20000};  // for a scheduler that is down
  // Makes 32 unguessable bytes for each copy between workers. Empty: no tokens (simulation, tests).
  std::function<std::string()> new_token;
  Reach program_reach = Reach::kIsland;
  bool own_collectives = false;  // Gangway's also inside of a worker, where they are to be had
  bool isolates =
      false;  // sessions of different owners share no worker and no compiler (isolation.h)
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CONTROLLER_CONFIG_H_
