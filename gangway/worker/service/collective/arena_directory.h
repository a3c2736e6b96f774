// The collectives' memory of the simulated workers in one process, by incarnation: members use that of one another as
// it is, without a link and without mapping it again. Thread-safe.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_ARENA_DIRECTORY_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_ARENA_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "gangway/base/mutex.h"
#include "gangway/collective/execution/arena.h"

namespace gangway::worker {

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

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_ARENA_DIRECTORY_H_
