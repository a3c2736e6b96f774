// What simulated workers in one process share, instead of threads and memory of their own. Made by RunSimulatedWorkers
// (worker.h), and as constant as the process.
#ifndef GANGWAY_WORKER_SERVICE_SHARED_BY_WORKERS_H_
#define GANGWAY_WORKER_SERVICE_SHARED_BY_WORKERS_H_

#include <atomic>
#include <memory>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/worker/service/collective/arena_directory.h"
#include "gangway/worker/service/device/device_pool.h"

namespace gangway::worker {

struct SharedByWorkers {
  std::shared_ptr<EventLoop> loop = std::make_shared<EventLoop>("workers");
  EventLoop loader{"loader"};
  EventLoop transfers{"transfers"};  // and what streams bring for collectives
  DevicePool devices;
  ArenaDirectory arenas;
  std::atomic<Clock::rep> loop_runs_since = 0;  // WorkerService::LoopRunsSince of them all
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_SHARED_BY_WORKERS_H_
