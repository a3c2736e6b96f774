// The storages: sets of shards that arrays hold, each with its producer, its losses, and the awaits that wait for it.
//
// A storage lives as long as an array holds it or an await waits for it (OB-1). Shards that no array holds any more, or
// that one of them has taken, are freed at once on all islands of the storage. A storage is pending until the node that
// produces it has ended; its failure, of all shards or of those that a worker took with it, reaches every array (ER-1).
//
// Storages are found by their list of devices, and lists by worker (base/device_lists.h): a worker's death costs time
// for the storages that have shards on it, and a new storage none for its devices.
//
// Pure; not thread-safe. Stands on Outbox, which gets the frees; an Ordinal is only a name here.
#ifndef GANGWAY_CONTROLLER_CORE_STORAGES_H_
#define GANGWAY_CONTROLLER_CORE_STORAGES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/shard_holds.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

// A run of consecutive shards of one storage, in an array.
struct Run {
  StorageId storage;
  uint32_t first = 0;
  uint32_t count = 0;     // 0: one shard, which the array has dropped
  uint32_t position = 0;  // of its first shard in the array
  ShardRange range() const { return {first, count}; }
};

class Storages {
 public:
  // An await that waits for shards, and their index among all that it waits for.
  struct Waiter {
    SessionId session;
    AwaitId await;
    uint32_t index = 0;
  };
  // What an await has waited for is settled, well or with this failure.
  struct Settled {
    Waiter waiter;
    wire::FailureRef failure;
  };

  // Both outlive this. `lists` has the list of every storage.
  Storages(const DeviceLists& lists, Outbox& outbox) : lists_(lists), outbox_(outbox) {}

  // A storage that no array holds yet.
  StorageId Add(SessionId session, const DeviceListRef& devices, uint64_t shard_bytes,
                Ordinal producer);

  // The runs below are of storages that exist.

  void Hold(const Run& run) {
    if (run.count != 0) storages_.at(run.storage).holds.Hold(run.range());
  }
  // An array that held the run lets go of it.
  void LetGo(const Run& run);
  // The shards are freed once no earlier node uses them; arrays that share them become unusable.
  void Take(const Run& run);
  // Replaces a run that an array holds by runs of one shard each, which it holds.
  void Split(const Run& run, std::vector<Run>& single);

  // Whether a shard of the run is freed.
  bool AnyGone(const Run& run) const;
  // The failure of the first spoiled shard of the run.
  wire::FailureRef FailureOf(const Run& run) const;
  // The first shard of the run that is neither freed nor spoiled, by its index in the storage.
  std::optional<uint32_t> FirstGood(const Run& run) const;
  // The node that has not ended; none: the storage is settled.
  Ordinal ProducerOf(StorageId id) const { return storages_.at(id).producer; }
  // Has the await wait for the run. False: it is settled, or shards of it are freed.
  bool Wait(const Run& run, const Waiter& waiter);

  // The producer has failed: the first failure of a storage counts. It may be gone already.
  void Spoil(StorageId id, const wire::FailureRef& failure);
  // The producer has ended. Returns the awaits that waited. The storage may be gone already.
  std::vector<Settled> Settle(StorageId id);
  // The shards on the worker's devices are lost, and no others. Not those of storages whose producer `is_pending`: the
  // scheduler decides about them.
  void Lose(size_t worker_number, const wire::FailureRef& failure,
            const std::function<bool(Ordinal)>& is_pending);

  size_t size() const { return storages_.size(); }
  // What each session's shards take, that are neither freed nor lost.
  absl::flat_hash_map<SessionId, uint64_t> BytesBySession() const;

 private:
  struct Storage {
    SessionId session;
    ShardHolds holds{0};  // of arrays (OB-1)
    Ordinal producer;     // none: settled
    DeviceListRef devices;
    uint64_t shard_bytes = 0;
    wire::FailureRef failure;  // of all shards
    // Of single workers, by their index in DeviceList::workers().
    absl::flat_hash_map<size_t, wire::FailureRef> losses;
    std::vector<std::pair<Run, Waiter>> waiters;
  };
  static wire::FailureRef FailureOf(const Storage& storage, const Run& run);
  static uint64_t ShardsLeft(const Storage& storage);
  void SendFree(const Storage& storage, StorageId id, const std::vector<ShardRange>& freed);
  void Erase(StorageId id);

  const DeviceLists& lists_;
  Outbox& outbox_;
  absl::flat_hash_map<StorageId, Storage> storages_;
  absl::flat_hash_map<const DeviceList*, absl::flat_hash_set<StorageId>> by_devices_;  // none empty
  uint64_t next_ = 1;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_STORAGES_H_
