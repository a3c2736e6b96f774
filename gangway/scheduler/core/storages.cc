// Implementation of storages.h.
#include "gangway/scheduler/core/storages.h"

#include <algorithm>

namespace gangway::scheduler {
namespace {

const std::vector<IslandDevice> kNoDevices;

}  // namespace

const std::vector<IslandDevice>& Storages::State::devices() const {
  return group == nullptr ? kNoDevices : group->layout->devices;
}

const Storages::State* Storages::Find(StorageId id) const {
  auto it = storages_.find(id);
  return it == storages_.end() ? nullptr : &it->second;
}

Storages::State* Storages::Find(StorageId id) {
  auto it = storages_.find(id);
  return it == storages_.end() ? nullptr : &it->second;
}

// --- A node comes ---

void Storages::Write(const NodeState& producer, StorageId id, LayoutRef layout,
                     uint64_t shard_bytes) {
  State& state = storages_[id];
  Discharge(state, [](size_t) { return true; });
  state.producer = producer.ordinal;
  state.session = producer.session;
  state.shard_bytes = shard_bytes;
  state.pending_frees.clear();
  state.consumed.clear();
  LeaveGroup(id, state);
  if (!layout->devices.empty()) JoinGroup(id, state, std::move(layout));
}

void Storages::JoinGroup(StorageId id, State& state, LayoutRef layout) {
  auto [it, is_new] = groups_.try_emplace(layout->number);
  if (is_new) it->second.layout = std::move(layout);
  it->second.storages.insert(id);
  state.group = &it->second;
}

void Storages::LeaveGroup(StorageId id, State& state) {
  Group* group = std::exchange(state.group, nullptr);
  if (group == nullptr) return;
  group->storages.erase(id);
  if (!group->storages.empty()) return;
  groups_.erase(group->layout->number);
}

std::optional<Storages::Reading> Storages::Read(StorageId id, Ordinal reader, bool consumes) {
  State* storage = Find(id);
  if (storage == nullptr) return std::nullopt;
  Reading reading{.producer = storage->producer};
  ++storage->uses;
  if (consumes && storage->is_shared() && storage->uses > 1)
    storage->consumed.push_back({reader, storage->uses, {}});
  if (storage->unreleased_readers > 0 && consumes) {
    reading.waits_for_readers = true;
    storage->consumers.push_back({reader, storage->unreleased_readers});
  }
  ++storage->unreleased_readers;
  return reading;
}

void Storages::NoteCopied(const std::vector<StorageId>& sources, const wire::Copy& copy) {
  for (StorageId id : sources) {
    if (State* source = Find(id)) source->shared = true;
  }
  bool stays = false;  // a shard, whose buffer the result shares
  for (int i = 0; i < std::min(copy.source_devices_size(), copy.devices_size()); ++i)
    stays |= copy.source_devices(i) == copy.devices(i);
  if (!stays) return;
  for (const wire::CopiedArray& array : copy.arrays()) {
    if (State* result = Find(StorageId(array.storage()))) result->shared = true;
  }
}

void Storages::BeginFetch(const std::vector<StorageId>& sources) {
  for (StorageId id : sources) {
    if (State* source = Find(id)) ++source->fetches;
  }
}

void Storages::EndFetch(const std::vector<StorageId>& sources) {
  for (StorageId id : sources) {
    State* source = Find(id);
    if (source != nullptr && source->fetches > 0) --source->fetches;
  }
}

// --- What holds of a storage ---

Ordinal Storages::ProducerOf(StorageId id) const {
  const State* storage = Find(id);
  return storage == nullptr ? Ordinal() : storage->producer;
}

wire::FailureRef Storages::FailureOf(StorageId id) const {
  const State* storage = Find(id);
  return storage == nullptr ? nullptr : storage->failure;
}

uint64_t Storages::ShardBytesOf(StorageId id) const {
  const State* storage = Find(id);
  return storage == nullptr ? 0 : storage->shard_bytes;
}

bool Storages::IsShared(StorageId id) const {
  const State* storage = Find(id);
  return storage != nullptr && storage->is_shared();
}

wire::FailureRef Storages::LostShard(const wire::ArrayRef& ref, const DeviceIds& devices) const {
  if (!shards_lost_) return nullptr;
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    const State* storage = Find(StorageId(run.storage()));
    const bool whole = storage == nullptr || storage->lost.empty();
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      if (whole) continue;
      const auto device = fleet_.Find(DeviceId(devices.Get(position)));
      if (!device) continue;
      auto lost = storage->lost.find(fleet_.WorkerOf(*device));
      if (lost != storage->lost.end()) return lost->second;
    }
  }
  return nullptr;
}

void Storages::Count(SessionId session, Ledger::DeviceBytes& books) const {
  for (const auto& [id, storage] : storages_) {
    if (storage.session != session) continue;
    for (size_t i = 0; i < storage.charged.size(); ++i) {
      if (storage.charged[i]) books[storage.devices()[i].number()] += storage.shard_bytes;
    }
  }
}

// --- A node goes on ---

void Storages::NoteCharged(const std::vector<StorageId>& written) {
  for (StorageId id : written) {
    State& storage = storages_.at(id);
    storage.charged.assign(storage.devices().size(), true);
  }
}

std::vector<Ordinal> Storages::EndReads(const NodeState& node) {
  std::vector<Ordinal> unblocked;
  for (StorageId id : node.reads) {
    State* storage = Find(id);
    if (storage == nullptr) continue;
    --storage->unreleased_readers;
    std::erase_if(storage->consumers, [&](Consumer& consumer) {
      if (consumer.node <= node.ordinal || --consumer.readers_left != 0) return false;
      unblocked.push_back(consumer.node);
      return true;
    });
  }
  return unblocked;
}

void Storages::Consume(Ordinal consumer, const std::vector<ShardRange>& consumed) {
  for (const ShardRange& shards : consumed) {
    State* storage = Find(shards.storage);
    if (storage == nullptr) continue;
    const auto held = std::ranges::find(storage->consumed, consumer, &LastUse::last);
    if (held != storage->consumed.end() && held->uses_left > 1) {  // one of them is the consumer's
      held->shards.push_back(shards);
    } else {
      Discharge(*storage, shards);
    }
  }
}

void Storages::Settle(StorageId id, Ordinal producer, const wire::FailureRef& failure) {
  State* storage = Find(id);
  if (storage == nullptr) return;
  storage->producer = {};
  if (failure && !storage->failure) storage->failure = failure;
  EndUse(id, producer);
}

std::vector<ShardRange> Storages::EndUseOf(std::vector<LastUse>& pending, Ordinal node) {
  std::vector<ShardRange> ended;
  std::erase_if(pending, [&](LastUse& use) {
    if (use.last < node || --use.uses_left != 0) return false;
    ended.insert(ended.end(), use.shards.begin(), use.shards.end());
    return true;
  });
  return ended;
}

void Storages::EndUse(StorageId id, Ordinal node) {
  State* storage = Find(id);
  if (storage == nullptr) return;
  if (storage->uses > 0) --storage->uses;
  for (const ShardRange& shards : EndUseOf(storage->consumed, node)) Discharge(*storage, shards);
  for (const ShardRange& shards : EndUseOf(storage->pending_frees, node)) ReclaimShards(shards);
  Reclaim(id);
}

// --- Handles go, and workers ---

void Storages::Free(const wire::Free& free, Ordinal latest) {
  for (uint64_t number : free.storages()) {
    State* storage = Find(StorageId(number));
    if (storage == nullptr) continue;
    storage->freed = true;
    Reclaim(StorageId(number));
  }
  for (const wire::ShardRun& run : free.shards())
    FreeShards({StorageId(run.storage()), run.first(), run.count()}, latest);
}

void Storages::FreeShards(const ShardRange& shards, Ordinal latest) {
  State* storage = Find(shards.storage);
  if (storage == nullptr) return;
  if (storage->uses == 0) return ReclaimShards(shards);
  auto& pending_frees = storage->pending_frees;
  if (pending_frees.empty() || pending_frees.back().last != latest ||
      pending_frees.back().uses_left != storage->uses)
    pending_frees.push_back({latest, storage->uses, {}});
  pending_frees.back().shards.push_back(shards);
}

void Storages::Lose(uint32_t worker, wire::FailureRef failure, const std::set<Ordinal>& held_back) {
  std::vector<StorageId> lost;
  for (const auto& [number, group] : groups_) {
    if (std::ranges::find(group.layout->workers, worker) == group.layout->workers.end()) continue;
    lost.insert(lost.end(), group.storages.begin(), group.storages.end());
  }
  std::erase_if(lost, [&](StorageId id) { return held_back.contains(storages_.at(id).producer); });
  std::ranges::sort(lost);
  shards_lost_ |= !lost.empty();
  for (StorageId id : lost) {
    State& storage = storages_.at(id);
    storage.lost.emplace(worker, failure);
    const bool all = std::ranges::all_of(
        storage.group->layout->workers, [&](uint32_t each) { return storage.lost.contains(each); });
    if (!storage.failure && (all || storage.producer != Ordinal())) storage.failure = failure;
    Reclaim(id);
  }
}

template <typename Which>
void Storages::Discharge(State& storage, Which which) {
  std::vector<IslandDevice> devices;
  devices.reserve(storage.charged.size());
  for (size_t index = 0; index < storage.charged.size(); ++index) {
    if (!storage.charged[index] || !which(index)) continue;
    storage.charged[index] = false;
    devices.push_back(storage.devices()[index]);
  }
  books_.Credit(storage.session, devices, storage.shard_bytes);
}

void Storages::Discharge(State& storage, const ShardRange& shards) {
  if (storage.group == nullptr) return;
  std::vector<IslandDevice> devices;
  for (uint32_t i = 0; i < shards.count; ++i) {
    const auto index = storage.group->layout->IndexOf(shards.first + i);
    if (!index || *index >= storage.charged.size() || !storage.charged[*index]) continue;
    storage.charged[*index] = false;
    devices.push_back(storage.devices()[*index]);
  }
  books_.Credit(storage.session, devices, storage.shard_bytes);
}

// OB-1: the last reference frees the shards everywhere. Shards of a spoiled storage are freed once
// no node uses them: no later node may read them, and the failure record stays here.
void Storages::Reclaim(StorageId id) {
  auto it = storages_.find(id);
  State& storage = it->second;
  if (storage.uses > 0) return;
  if (!storage.lost.empty()) {  // what a worker took with it is free
    Discharge(storage, [&](size_t index) {
      return storage.lost.contains(fleet_.WorkerOf(storage.devices()[index]));
    });
  }
  if (!storage.freed && !storage.failure) return;
  Discharge(storage, [](size_t) { return true; });
  const bool reclaimed = std::exchange(storage.reclaimed, true);
  const LayoutRef layout = storage.group == nullptr ? nullptr : storage.group->layout;
  if (storage.freed) {
    LeaveGroup(id, storage);
    storages_.erase(it);
  }
  if (reclaimed || layout == nullptr) return;
  outbox_.SendFree(layout->workers, id);
}

// OB-1, for shards alone: the storage keeps its other ones.
void Storages::ReclaimShards(const ShardRange& shards) {
  State* storage = Find(shards.storage);
  if (storage == nullptr || storage->reclaimed || storage->group == nullptr) return;
  std::vector<IslandDevice> devices;
  for (uint32_t i = 0; i < shards.count; ++i) {
    const std::optional<size_t> index = storage->group->layout->IndexOf(shards.first + i);
    if (index) devices.push_back(storage->devices()[*index]);
  }
  if (devices.empty()) return;
  Discharge(*storage, shards);
  outbox_.SendFree(fleet_.WorkersOf(devices), shards);
}

}  // namespace gangway::scheduler
