// What an island's scheduler is configured with, what it is told, and what it answers. Plain data.
#ifndef GANGWAY_SCHEDULER_CORE_EVENTS_H_
#define GANGWAY_SCHEDULER_CORE_EVENTS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/put_limits.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

using Time = std::chrono::steady_clock::time_point;

struct WorkerSpec {
  std::vector<DeviceId> devices;
  Incarnation last_incarnation;  // known to an earlier scheduler of this island; 0 = none
};

struct IslandConfig {
  uint32_t island = 0;
  std::vector<WorkerSpec> workers;  // by index in the island
  uint32_t window = 16;             // launches in flight per device; below the backend's own limit
  uint64_t budget_bytes = 0;        // per device; 0 = no limit but the workers' own
  uint64_t put_cost_max = wire::kPutWorkerCostMax;
  std::chrono::milliseconds memory_wait_max{30000};
  std::chrono::milliseconds worker_wait_max{20000};
  std::chrono::milliseconds upload_wait_max{60000};  // for the next byte of a released upload
  // When a member of a gang has waited this long for another one in a collective of Gangway's own:
  std::chrono::milliseconds late_after{5000};          // the late members are logged
  std::chrono::milliseconds collective_limit{300000};  // the gang is aborted
  // When a launch that no session waits for has had a device this long, its worker is told to end.
  std::chrono::milliseconds orphan_limit{10000};
  // When the host callbacks of one session have held a device this long that others wait for, its gang is aborted.
  std::chrono::milliseconds callback_hold_max{120000};
};

struct FromController {
  wire::IslandBatch batch;
};
struct WorkerUp {
  wire::WorkerRegistration registration;
  uint64_t process_id = 0;
};
struct WorkerDown {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::Failure why;
  bool crashed = false;  // what it executed may have ended it
};
struct FromWorker {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::ReportBatch batch;
};
// A heartbeat that names stuck or held devices or members of gangs, or the first that names none again.
struct WorkerBeat {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::Heartbeat beat;
  std::vector<Time> heard;  // by worker: when its last message arrived; Time() = never
};
struct Tick {};
using Event = std::variant<FromController, WorkerUp, WorkerDown, FromWorker, WorkerBeat, Tick>;

// An item for these workers, by index in the island: the same for all of them.
struct ToWorkers {
  std::vector<uint32_t> workers;
  wire::IslandItem item;
};

struct Actions {
  std::vector<ToWorkers> to_workers;
  std::vector<wire::Report> to_controller;
  std::vector<std::string>
      notices;  // log lines: stuck devices, late members, missed deadlines (TM-1)
  std::vector<ExecutableId> unloaded;  // no Load of these comes any more
  // Processes that get nothing more, and whose links are to be closed. Items for them come before.
  std::vector<WorkerDown> replaced;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_EVENTS_H_
