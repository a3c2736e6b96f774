// Handles: what a session knows of its handles: on which devices the shards of an array are, which determines the
// worker that a fetch waits for; on which devices an executable runs; and which shards are dropped one by one. It makes
// the operations that change this.
//
// Threading: thread-safe, but for SetWorkers, which comes before all else. Its lock is taken before the Submitter's.
// Failure: operations of a lost session do nothing, but tell `ended`.
#ifndef GANGWAY_CLIENT_HANDLES_H_
#define GANGWAY_CLIENT_HANDLES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/client/data_links.h"
#include "gangway/client/submitter.h"

namespace gangway::client {

// Of an array's shards, or of an executable's logical positions, in order.
using Devices = std::shared_ptr<const std::vector<uint32_t>>;

class Handles {
 public:
  Handles(EventLoop* loop, Submitter* submitter) : loop_(loop), submitter_(*submitter) {}

  void SetWorkers(absl::flat_hash_map<uint32_t, WorkerKey> worker_of);  // by device

  // Null: the cluster has no such device.
  std::optional<WorkerKey> WorkerOf(uint32_t device) const;
  // Null: this session does not know where the shard is.
  std::optional<WorkerKey> WorkerOf(ShardOf shard) const GANGWAY_EXCLUDES(mutex_);
  const std::set<WorkerKey>& workers() const { return workers_; }

  // Null: this session does not know that.
  Devices DevicesOf(ArrayHandle array) const GANGWAY_EXCLUDES(mutex_);
  Devices DevicesOf(ExecutableHandle executable) const GANGWAY_EXCLUDES(mutex_);

  void NoteArray(ArrayHandle array, Devices devices) GANGWAY_EXCLUDES(mutex_);
  // arrays[i] is on devices[i]; null: not known.
  void NoteArrays(std::span<const ArrayHandle> arrays, std::span<const Devices> devices)
      GANGWAY_EXCLUDES(mutex_);
  void NoteExecutable(ExecutableHandle executable, Devices devices) GANGWAY_EXCLUDES(mutex_);

  // The operations of Client that have these names.
  OperationId Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions options)
      GANGWAY_EXCLUDES(mutex_);
  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t> devices, const std::string& memory_kind,
                   StatusCallback ended) GANGWAY_EXCLUDES(mutex_);
  void Regroup(const std::vector<Client::Regrouped>& results) GANGWAY_EXCLUDES(mutex_);
  void Drop(std::span<const ArrayHandle> arrays) GANGWAY_EXCLUDES(mutex_);
  void Delete(std::span<const ArrayHandle> arrays) GANGWAY_EXCLUDES(mutex_);
  void DropShard(ShardOf shard, uint32_t shard_count) GANGWAY_EXCLUDES(mutex_);
  void Poison(std::span<const ArrayHandle> arrays, const Status& why);
  void DropExecutables(std::span<const ExecutableHandle> executables) GANGWAY_EXCLUDES(mutex_);

  // The session is lost.
  void Clear() GANGWAY_EXCLUDES(mutex_);

 private:
  // An array whose shards are dropped one by one.
  struct Dropping {
    uint32_t left = 0;             // shards that are not dropped
    std::vector<uint32_t> unsent;  // dropped ones of which the controller does not know
  };

  void SendSoon() GANGWAY_EXCLUDES(mutex_);
  void AppendDrop(std::span<const ArrayHandle> arrays) GANGWAY_EXCLUDES(mutex_);
  void AppendShardDrops() GANGWAY_EXCLUDES(mutex_);
  std::optional<uint32_t> DeviceOf(ShardOf shard) const GANGWAY_REQUIRES(mutex_);
  // Where the shards of the new arrays are. Leaves out those of which that is not known here: the controller chooses a
  // replica, which any worker may send.
  std::vector<std::pair<ArrayHandle, Devices>> PlacementsOf(
      const std::vector<Client::Regrouped>& results) const GANGWAY_EXCLUDES(mutex_);

  EventLoop* const loop_;
  Submitter& submitter_;
  // Set by SetWorkers, constant afterwards.
  absl::flat_hash_map<uint32_t, WorkerKey> worker_of_;
  std::set<WorkerKey> workers_;

  mutable Mutex mutex_;
  absl::flat_hash_map<ArrayHandle, Devices> arrays_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<ExecutableHandle, Devices> executables_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<ArrayHandle, Dropping> dropping_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<ArrayHandle> shard_drops_
      GANGWAY_GUARDED_BY(mutex_);                      // in dropping_, with unsent ones
  bool send_soon_ GANGWAY_GUARDED_BY(mutex_) = false;  // a timer will send
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_HANDLES_H_
