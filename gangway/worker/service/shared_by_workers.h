// What simulated workers in one process share, instead of threads and memory of their own. Made by RunSimulatedWorkers
// (worker.h), and as constant as the process.
#ifndef GANGWAY_WORKER_SERVICE_SHARED_BY_WORKERS_H_
#define GANGWAY_WORKER_SERVICE_SHARED_BY_WORKERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"
#include "gangway/worker/service/device/device_pool.h"

namespace gangway::worker {

// The collectives' memory of the process's workers, by incarnation: members use that of one another as it is, without a
// link and without mapping it again. Thread-safe.
class ArenaDirectory {
 public:
  void Add(uint64_t incarnation, std::shared_ptr<collective::Arena> arena)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    arenas_.emplace(incarnation, std::move(arena));
  }

  // Null: it is of another process.
  std::shared_ptr<collective::Arena> Find(uint64_t incarnation) const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = arenas_.find(incarnation);
    return found == arenas_.end() ? nullptr : found->second;
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<collective::Arena>> arenas_
      GANGWAY_GUARDED_BY(mutex_);
};

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
