// Drops what a session holds, as long as the session is open. The C API wants buffers and executables to be destroyed
// before their client, but garbage collectors destroy them in any order; after the client, a drop does nothing, since
// the session's end has freed all.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_DROPS_H_
#define GANGWAY_FRONTDOOR_PJRT_DROPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/pjrt/gathered_cache.h"

namespace gangway::pjrt {

class Drops {
 public:
  // Both live until Close.
  Drops(Client* client, GatheredCache* gathered) : client_(client), gathered_(gathered) {}
  Drops(const Drops&) = delete;
  Drops& operator=(const Drops&) = delete;

  // `is_gathered`: arrays of the cache may have it; those go as well.
  void Shard(const ShardOf& shard, uint32_t shard_count, bool is_gathered)
      GANGWAY_EXCLUDES(mutex_) {
    if (IsOrphan()) return;
    std::vector<GatheredArray> views;  // each end takes the lock
    const MutexLock lock(mutex_);
    if (client_ == nullptr) return;
    if (is_gathered) views = gathered_->Forget(shard);
    client_->DropShard(shard, shard_count);
  }

  void Array(ArrayHandle array) GANGWAY_EXCLUDES(mutex_) {
    if (IsOrphan()) return;
    const MutexLock lock(mutex_);
    if (client_ != nullptr) client_->Drop(std::span<const ArrayHandle>(&array, 1));
  }

  void Executable(ExecutableHandle executable) GANGWAY_EXCLUDES(mutex_) {
    if (IsOrphan()) return;
    const MutexLock lock(mutex_);
    if (client_ != nullptr)
      client_->DropExecutables(std::span<const ExecutableHandle>(&executable, 1));
  }

  // Before the session ends.
  void Close() GANGWAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    client_ = nullptr;
  }

 private:
  // In a forked child, where a thread of the parent may have left the lock locked.
  bool IsOrphan() const { return ForkGeneration() != fork_generation_; }

  const uint64_t fork_generation_ = ForkGeneration();
  Mutex mutex_;
  Client* client_ GANGWAY_GUARDED_BY(mutex_);  // null: closed
  GatheredCache* const gathered_;
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_DROPS_H_
