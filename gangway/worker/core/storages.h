// The storages that have shards on this worker: which shards, whether they are pending, present or failed, and which
// nodes wait for that to be decided.
//
//   * A storage is pending, present or failed as a whole: its local shards are never poisoned one by one. They may be
//     donated and freed one by one (OB-1).
//   * The first failure of a storage stays: every later reader sees the root cause (ER-1).
//
// What the service must do is added to `actions`. Input is not trusted to be consistent: what is not known is ignored,
// or answered with a failure, which names no node. Not thread-safe.
#ifndef GANGWAY_WORKER_CORE_STORAGES_H_
#define GANGWAY_WORKER_CORE_STORAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/fleet.h"
#include "gangway/worker/core/held.h"

namespace gangway::worker {

class Storages {
 public:
  enum class State { kUnknown, kPending, kPresent, kFailed };

  explicit Storages(std::string worker_name) : worker_name_(std::move(worker_name)) {}

  size_t size() const { return storages_.size(); }
  void Clear() { storages_.clear(); }

  // --- A node comes ---

  // Adds a pending storage, with the shards at these positions. Fails if it exists.
  std::optional<wire::Failure> Create(CreateStorage storage, const LocalPositions& positions,
                                      std::vector<Action>& actions);
  // Adds a pending storage whose shards are not known, since its node could not be prepared. False: it exists.
  bool CreateUnknown(StorageId id) { return storages_.try_emplace(id).second; }
  // Finds the shard of `ref` at each local position, in their order, and checks that it exists on that device. `what`
  // names the reference in the failure.
  std::optional<wire::Failure> Resolve(const wire::ArrayRef& ref, const LocalPositions& positions,
                                       const std::string& what, const Fleet& fleet,
                                       std::vector<ShardKey>& shards) const;
  // Nodes that come later cannot use the shard, which is donated to the launch.
  void Consume(const ShardKey& key, Ordinal launch);

  // --- What holds of a storage ---

  State StateOf(StorageId id) const;
  // Null: it has not failed.
  const wire::Failure* FailureOf(StorageId id) const;
  // Whether shards of it are here that were not freed.
  bool HasShards(StorageId id) const;
  // Of no record: it is not known, or its shards are not.
  Held<HeldShards> HeldOf(StorageId id) const;

  // --- It is decided, or ends ---

  // It is present or, with a failure, failed. One that has failed stays as it is.
  void Settle(StorageId id, const std::optional<wire::Failure>& failure,
              std::vector<Action>& actions);
  // The service ends what waits for any shard. The records stay as they are.
  void PoisonAll(const wire::Failure& failure, std::vector<Action>& actions) const;
  void Free(StorageId id, std::vector<Action>& actions);
  void FreeShards(const wire::ShardRun& run, std::vector<Action>& actions);

  // The node waits until this storage, which is pending, settles or is freed.
  void Await(StorageId id, Ordinal node);
  // The nodes that no longer wait since the last call, in the order in which their waits ended.
  std::vector<Ordinal> TakeWoken() { return std::exchange(woken_, {}); }

 private:
  struct Storage {
    struct Shard {
      uint32_t number = 0;
      int device = 0;       // -1: freed
      Ordinal consumed_by;  // the launch that it was donated to; 0: none
    };
    // None: another worker's.
    const Shard* Find(uint32_t number) const;
    Shard* Find(uint32_t number) { return const_cast<Shard*>(std::as_const(*this).Find(number)); }

    State state = State::kPending;
    Held<HeldShards> held;
    size_t shard_count = 0;        // 0: unknown, only if it has failed
    std::vector<Shard> shards;     // that are, or were, on this worker, by number
    wire::Failure failure;         // if kFailed
    std::vector<Ordinal> waiters;  // while kPending
  };

  // Also finds what is held of its storage.
  std::optional<wire::Failure> Check(ShardKey& key, int device, const std::string& what,
                                     const Fleet& fleet) const;
  void Wake(Storage& storage);

  const std::string worker_name_;
  std::unordered_map<StorageId, Storage> storages_;
  std::vector<Ordinal> woken_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_STORAGES_H_
