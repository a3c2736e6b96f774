// Fetches: bytes of arrays that this session has asked for. It keeps which shards are not complete, where their bytes
// go, and which workers they are awaited from. Small fetches from one worker may become one operation.
//
// Threading: thread-safe; what says so, on the loop only. Its lock is taken before those of Handles and Submitter.
// Sinks are called on the loop, without the lock.
//
// Failure: a fetch ends with the first failure of one of its shards; those that are complete have ended.
#ifndef GANGWAY_CLIENT_FETCHES_H_
#define GANGWAY_CLIENT_FETCHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/data_links.h"
#include "gangway/client/handles.h"
#include "gangway/client/submitter.h"
#include "gangway/transport/bulk/incoming_shard.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class Fetches {
 public:
  // `use`: something is to come from the worker. On the calling thread.
  Fetches(Activity* activity, Submitter* submitter, const Handles* handles,
          std::function<void(WorkerKey)> use)
      : activity_(*activity), submitter_(*submitter), handles_(*handles), use_(std::move(use)) {}

  void Fetch(ArrayHandle array, std::span<const uint32_t> shards, FetchSink sink)
      GANGWAY_EXCLUDES(mutex_);

  // The workers that have not sent all that they are to send.
  std::set<WorkerKey> Awaited() const GANGWAY_EXCLUDES(mutex_);

  // All on the loop. A piece of a shard, or its failure; all bytes of a shard, in a worker's memory.
  void OnShard(const wire::Bulk& bulk) GANGWAY_EXCLUDES(mutex_);
  void OnPlace(FetchId fetch, uint32_t shard, std::shared_ptr<const char> bytes, size_t size)
      GANGWAY_EXCLUDES(mutex_);
  void OnWorkerLost(WorkerKey worker, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  void End(FetchId fetch, const absl::Status& why) GANGWAY_EXCLUDES(mutex_);
  void EndAll(const absl::Status& why) GANGWAY_EXCLUDES(mutex_);

 private:
  // What one call of Fetch asked for. Once it is submitted, only the loop uses it.
  struct Part {
    size_t first = 0;  // index of its first shard in the operation
    std::vector<transport::IncomingShard> shards;
    size_t left = 0;  // shards that are not complete
    FetchSink sink;
  };
  // One operation: the part of a call, or of several that have joined.
  struct Fetching {
    std::vector<std::shared_ptr<Part>> part_of;       // by shard; null: it is complete
    std::vector<std::optional<WorkerKey>> worker_of;  // by shard; null: unknown to this client
    size_t left = 0;                                  // shards that are not complete
    bool is_joint = false;                            // all its parts may join
  };

  // The operation that is being filled with fetches from `worker`, if it takes one more; it has the shard then.
  std::optional<FetchId> Join(const std::optional<WorkerKey>& worker, ShardOf shard)
      GANGWAY_REQUIRES(mutex_);
  std::set<WorkerKey> AwaitedOf(const Fetching& fetching) const;
  // Of the shard; nothing: it may come from any worker.
  void Use(const std::optional<WorkerKey>& worker) const;
  std::shared_ptr<Part> FindPart(FetchId fetch, uint32_t shard) GANGWAY_EXCLUDES(mutex_);
  void CompleteShard(FetchId fetch, uint32_t shard) GANGWAY_EXCLUDES(mutex_);
  static void EndParts(const Fetching& fetching, const absl::Status& why);

  Activity& activity_;
  Submitter& submitter_;
  const Handles& handles_;
  const std::function<void(WorkerKey)> use_;

  mutable Mutex mutex_;
  std::map<FetchId, Fetching> fetches_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_FETCHES_H_
