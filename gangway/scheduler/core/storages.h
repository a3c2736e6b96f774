// The shards that nodes have made on this island: which nodes use them (OB-1), what spoiled them (ER-1), which of them
// were lost with a worker, and whether the books count them. Once no handle and no node is left, their workers are told
// to free them.
//
// Storages of one layout form a group. So what is lost with a worker is found by group, and a storage
// that has nothing there is not looked at.
//
// Input is not trusted to be consistent: methods that take ids ignore what is not known. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_STORAGES_H_
#define GANGWAY_SCHEDULER_CORE_STORAGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/books.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Storages {
 public:
  using DeviceIds = google::protobuf::RepeatedField<uint32_t>;

  // What a reader finds.
  struct Reading {
    Ordinal producer;                // that has not ended; 0: none
    bool waits_for_readers = false;  // it consumes shards that earlier nodes are still to read
  };

  Storages(const Fleet& fleet, Books& books, Outbox& outbox)
      : fleet_(fleet), books_(books), outbox_(outbox) {}

  size_t size() const { return storages_.size(); }

  // --- A node comes ---

  // The node makes these shards. A storage that is known already gets another producer.
  void Write(const NodeState& producer, StorageId id, LayoutRef layout, uint64_t shard_bytes);
  // A node uses what it writes until it ends: Settle() ends this use.
  void Use(StorageId id) { ++storages_[id].uses; }
  // A node uses what it reads until it ends: EndUse() ends this use. nullopt: the storage is not known.
  std::optional<Reading> Read(StorageId id, Ordinal reader, bool consumes);
  // From now on, donating these sources saves no memory (IsShared): a worker never donates a buffer that it has copied.
  // The same holds for results of which a shard stays on its device, since it shares its source's buffer.
  void NoteCopied(const std::vector<StorageId>& sources, const wire::Copy& copy);
  // The same holds while a fetch may hold the buffers: a fetch that waits for host memory reads them later.
  void BeginFetch(const std::vector<StorageId>& sources);
  void EndFetch(const std::vector<StorageId>& sources);

  // --- What holds of a storage ---

  bool Contains(StorageId id) const { return storages_.contains(id); }
  // The node that is still to end and writes it; 0: none, or the storage is not known.
  Ordinal ProducerOf(StorageId id) const;
  // What spoiled all of its shards. Null: nothing.
  wire::FailureRef FailureOf(StorageId id) const;
  uint64_t ShardBytesOf(StorageId id) const;  // 0: it is not known
  // Whether another storage, or a transfer, may hold its buffers: then donation saves no memory.
  bool IsShared(StorageId id) const;
  // Why a shard that `ref` names is gone, of those on the devices; null: none is.
  wire::FailureRef LostShard(const wire::ArrayRef& ref, const DeviceIds& devices) const;
  // The latest loss of a worker, which explains inputs that are not known; null: none was lost.
  const wire::FailureRef& last_loss() const { return last_loss_; }
  // What the books must hold for the session's storages.
  void Count(SessionId session, Ledger::DeviceBytes& books) const;

  // --- A node goes on ---

  // The node's memory is charged: what it writes is part of it.
  void NoteCharged(const std::vector<StorageId>& written);
  // The node was released, or never will be. Returns the nodes that no longer wait for readers of what they consume.
  std::vector<Ordinal> EndReads(const NodeState& node);
  // The node has succeeded. The memory of what it consumed is free, or belongs to its results. But where other nodes
  // may hold the buffers (IsShared), the books count them until the earlier ones of these nodes have ended (GS-2).
  void Consume(Ordinal consumer, const std::vector<ShardRange>& consumed);
  // The node has ended, and `failure`, if any, spoils what it writes.
  void Settle(StorageId id, Ordinal producer, const wire::FailureRef& failure);
  void EndUse(StorageId id, Ordinal node);

  // --- Handles go, and workers ---

  // No handle is left of these storages and shards. `latest`: the last node that may use them.
  void Free(const wire::Free& free, Ordinal latest);
  // Its shards, and no others, are gone. A storage whose producer has not ended fails as a whole, as its producer does;
  // one whose producer is held back has not come to the worker yet.
  void Lose(uint32_t worker, wire::FailureRef failure, const std::set<Ordinal>& held_back);
  // Keeps why a worker was lost: inputs that are not known from now on may have been lost with it.
  void NoteLoss(wire::FailureRef failure) { last_loss_ = std::move(failure); }

 private:
  struct Group {
    LayoutRef layout;
    absl::flat_hash_set<StorageId> storages;  // never empty
  };
  // A node that consumes shards of the storage, and waits until earlier nodes that read it are released.
  struct Consumer {
    Ordinal node;
    uint32_t readers_left = 0;  // of the earlier ones
  };
  // Shards that go once the nodes up to `last` which use the storage have ended. Later nodes do not use these shards.
  struct LastUse {
    Ordinal last;
    uint32_t uses_left = 0;
    std::vector<ShardRange> shards;
  };
  struct State {
    Ordinal producer;  // node that has not ended; 0 = settled
    SessionId session;
    Group* group = nullptr;     // null: it has no shard here
    std::vector<bool> charged;  // by index in the layout's devices: the books count it
    uint64_t shard_bytes = 0;
    uint32_t uses = 0;                // nodes that read or write it and have not ended (OB-1)
    uint32_t unreleased_readers = 0;  // nodes, also those that consume shards of it
    std::vector<Consumer> consumers;
    std::vector<LastUse> pending_frees;  // shards without a handle
    std::vector<LastUse> consumed;       // shards that `last` consumes, of a storage that is shared
    bool shared = false;
    uint32_t fetches = 0;                       // that have not ended
    bool freed = false;                         // no handle is left
    bool reclaimed = false;                     // the workers were told to free its shards
    wire::FailureRef failure;                   // of all shards
    std::map<uint32_t, wire::FailureRef> lost;  // the shards on these workers are gone

    const std::vector<IslandDevice>& devices() const;
    bool is_shared() const { return shared || fetches > 0; }
  };

  const State* Find(StorageId id) const;
  State* Find(StorageId id);
  void JoinGroup(StorageId id, State& state, LayoutRef layout);
  void LeaveGroup(StorageId id, State& state);
  // A use by the node has ended: returns the shards of which it was the last one.
  static std::vector<ShardRange> EndUseOf(std::vector<LastUse>& pending, Ordinal node);
  void FreeShards(const ShardRange& shards, Ordinal latest);
  // `which` tells, by index in the layout's devices, of which shards the books count nothing from now on.
  template <typename Which>
  void Discharge(State& storage, Which which);
  void Discharge(State& storage, const ShardRange& shards);
  void Reclaim(StorageId id);
  void ReclaimShards(const ShardRange& shards);

  const Fleet& fleet_;
  Books& books_;
  Outbox& outbox_;
  absl::flat_hash_map<StorageId, State> storages_;
  std::map<uint64_t, Group> groups_;  // by the layout's number
  bool shards_lost_ = false;          // since the start
  wire::FailureRef last_loss_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_STORAGES_H_
