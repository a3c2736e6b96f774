// GatheredCache: an array of the cluster for each list of shards that comes again, so that later calls name an array
// and not its shards (DF-1). JAX uploads and copies an array shard by shard, and passes the same list to each call.
//
// The first call with a list only leaves the list's hash here, so that lists which come once cost nothing else. The
// second one makes the array, by one operation for all lists of the call. Such an array holds its shards in the
// cluster, so it must go with the first of them that is dropped, deleted or donated (Forget): memory never waits for
// the cache (OB-1).
//
// Bounded: a list that no call has named for a while makes room for another one; while all are in use, further lists
// stay lists. A hash that another one has overwritten makes its list count as new.
//
// Threading: any thread. References are dropped without the lock. In a forked child, where the lock may stay locked,
// all lists stay lists.
#ifndef GANGWAY_FRONTDOOR_PJRT_GATHERED_CACHE_H_
#define GANGWAY_FRONTDOOR_PJRT_GATHERED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"

namespace gangway::pjrt {

// An array that is dropped with its last owner: the cache, or a call that is about to name it.
using GatheredArray = std::shared_ptr<const ArrayHandle>;

class GatheredCache {
 public:
  // Makes one array of each list.
  using Gather = std::function<std::vector<GatheredArray>(std::vector<std::vector<ShardOf>> lists)>;

  struct Limits {
    size_t lists = 16384;
    size_t shards = 262144;    // of all lists
    uint64_t idle_calls = 64;  // a list that was not in this number of calls may go
  };

  // A list of a call.
  struct List {
    std::span<const ShardOf> shards;  // at least one; alive until the call is submitted
    bool is_donated = false;          // then no array is made for it
    // Set by Name.
    GatheredArray array;  // null: the call names the shards
    bool is_new = false;  // the array was made now
  };

  explicit GatheredCache(Gather gather) : GatheredCache(std::move(gather), Limits()) {}
  GatheredCache(Gather gather, const Limits& limits);
  GatheredCache(const GatheredCache&) = delete;
  GatheredCache& operator=(const GatheredCache&) = delete;

  // Finds or makes the arrays of all lists of a call. `gather` runs before this returns, with the lock held.
  void Name(std::span<List> lists) GANGWAY_EXCLUDES(mutex_);

  // The arrays of all lists that have this shard, which is about to go. They are not here any more.
  [[nodiscard]] std::vector<GatheredArray> Forget(const ShardOf& shard) GANGWAY_EXCLUDES(mutex_);

  size_t size() const GANGWAY_EXCLUDES(mutex_);  // in lists

 private:
  struct Entry {
    std::vector<ShardOf> shards;
    GatheredArray array;  // null: it is about to be made
    uint64_t call = 0;    // the last one that named it
    std::list<uint64_t>::iterator used;
  };
  using Entries = absl::flat_hash_map<uint64_t, Entry>;  // by the hash of the list

  bool IsRepeated(uint64_t hash) GANGWAY_REQUIRES(mutex_);
  // False: all entries are in use.
  bool MakeRoom(size_t shards, std::vector<GatheredArray>& evicted) GANGWAY_REQUIRES(mutex_);
  void Add(uint64_t hash, std::span<const ShardOf> shards) GANGWAY_REQUIRES(mutex_);
  GatheredArray Remove(Entries::iterator entry) GANGWAY_REQUIRES(mutex_);

  const uint64_t fork_generation_ = ForkGeneration();
  const Gather gather_;
  const Limits limits_;
  mutable Mutex mutex_;
  uint64_t calls_ GANGWAY_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> seen_ GANGWAY_GUARDED_BY(mutex_);  // hashes, each in its slot
  Entries entries_ GANGWAY_GUARDED_BY(mutex_);
  std::list<uint64_t> used_ GANGWAY_GUARDED_BY(mutex_);  // the hashes of all entries, latest first
  size_t shard_count_ GANGWAY_GUARDED_BY(mutex_) = 0;    // of all entries
  // Array, index and the hash of an entry that has the shard.
  absl::btree_set<std::tuple<ArrayHandle, uint32_t, uint64_t>> lists_of_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_GATHERED_CACHE_H_
