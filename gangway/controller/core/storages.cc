// Implementation of storages.h.
#include "gangway/controller/core/storages.h"

#include <algorithm>

#include "gangway/base/sizes.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

StorageId Storages::Add(SessionId session, const DeviceListRef& devices, uint64_t shard_bytes,
                        Ordinal producer) {
  const StorageId id(next_++);
  Storage& storage = storages_[id];
  storage.session = session;
  storage.holds = ShardHolds(static_cast<uint32_t>(devices->size()));
  storage.producer = producer;
  storage.devices = devices;
  storage.shard_bytes = shard_bytes;
  by_devices_[devices.get()].insert(id);
  return id;
}

void Storages::LetGo(const Run& run) {
  if (run.count == 0) return;
  Storage& storage = storages_.at(run.storage);
  std::vector<ShardRange> freed;
  storage.holds.LetGo(run.range(), freed);
  SendFree(storage, run.storage, freed);
  if (storage.holds.held()) return;
  if (storage.waiters.empty()) Erase(run.storage);  // otherwise Settle() erases it
}

void Storages::Take(const Run& run) {
  if (run.count == 0) return;
  Storage& storage = storages_.at(run.storage);
  std::vector<ShardRange> freed;
  storage.holds.Take(run.range(), freed);
  SendFree(storage, run.storage, freed);
}

void Storages::Split(const Run& run, std::vector<Run>& single) {
  if (run.count <= 1) {
    single.push_back(run);
    return;
  }
  ShardHolds& holds = storages_.at(run.storage).holds;
  for (uint32_t i = 0; i < run.count; ++i) {
    single.push_back({run.storage, run.first + i, 1, run.position + i});
    holds.Hold(single.back().range());
  }
  std::vector<ShardRange> freed;  // none: all are held
  holds.LetGo(run.range(), freed);
}

bool Storages::AnyGone(const Run& run) const {
  return storages_.at(run.storage).holds.any_gone(run.range());
}

wire::FailureRef Storages::FailureOf(const Run& run) const {
  return FailureOf(storages_.at(run.storage), run);
}

wire::FailureRef Storages::FailureOf(const Storage& storage, const Run& run) {
  if (storage.failure || storage.losses.empty()) return storage.failure;
  if (run.count == 1) {  // what names shards one by one asks for each of them
    const auto loss = storage.losses.find(storage.devices->WorkerAt(run.first));
    return loss == storage.losses.end() ? nullptr : loss->second;
  }
  wire::FailureRef first;
  uint32_t end = run.first + run.count;
  for (const auto& [part, failure] : storage.losses) {
    const std::optional<uint32_t> lost = storage.devices->workers()[part].PositionFrom(run.first);
    if (!lost || *lost >= end) continue;
    first = failure;
    end = *lost;
  }
  return first;
}

std::optional<uint32_t> Storages::FirstGood(const Run& run) const {
  const Storage& storage = storages_.at(run.storage);
  if (storage.failure) return std::nullopt;
  for (uint32_t shard = run.first; shard < run.first + run.count; ++shard) {
    if (storage.holds.gone(shard) || FailureOf(storage, {run.storage, shard, 1})) continue;
    return shard;
  }
  return std::nullopt;
}

bool Storages::Wait(const Run& run, const Waiter& waiter) {
  Storage& storage = storages_.at(run.storage);
  if (storage.producer == Ordinal() || storage.holds.any_gone(run.range())) return false;
  storage.waiters.emplace_back(run, waiter);
  return true;
}

void Storages::Spoil(StorageId id, const wire::FailureRef& failure) {
  const auto storage = storages_.find(id);
  if (storage != storages_.end() && !storage->second.failure) storage->second.failure = failure;
}

std::vector<Storages::Settled> Storages::Settle(StorageId id) {
  std::vector<Settled> settled;
  const auto found = storages_.find(id);
  if (found == storages_.end()) return settled;
  Storage& storage = found->second;
  storage.producer = {};
  for (const auto& [run, waiter] : std::exchange(storage.waiters, {}))
    settled.push_back({waiter, FailureOf(storage, run)});
  if (!storage.holds.held()) Erase(id);
  return settled;
}

void Storages::Lose(size_t worker_number, const wire::FailureRef& failure,
                    const std::function<bool(Ordinal)>& is_pending) {
  for (const auto& [list, part] : lists_.OnWorker(worker_number)) {
    const auto storages = by_devices_.find(list);
    if (storages == by_devices_.end()) continue;
    for (const StorageId id : storages->second) {
      Storage& storage = storages_.at(id);
      if (storage.producer != Ordinal() && is_pending(storage.producer)) continue;
      storage.losses.try_emplace(part, failure);
    }
  }
}

void Storages::SendFree(const Storage& storage, StorageId id,
                        const std::vector<ShardRange>& freed) {
  if (freed.empty()) return;
  for (const uint32_t island : storage.devices->islands()) {
    wire::Free& free = outbox_.FreesOf(island);
    if (storage.holds.all_gone()) {
      free.add_storages(id.number());
      continue;
    }
    for (const ShardRange& range : freed) {
      wire::ShardRun* run = free.add_shards();
      run->set_storage(id.number());
      run->set_first(range.first);
      run->set_count(range.count);
    }
  }
}

void Storages::Erase(StorageId id) {
  const auto storage = storages_.find(id);
  const auto same = by_devices_.find(storage->second.devices.get());
  same->second.erase(id);
  if (same->second.empty()) by_devices_.erase(same);
  storages_.erase(storage);
}

uint64_t Storages::ShardsLeft(const Storage& storage) {
  uint64_t left = storage.devices->size() - storage.holds.gone_count();
  for (const auto& [part, failure] : storage.losses) {
    for (const DeviceList::Range& range : storage.devices->workers()[part].ranges) {
      for (uint32_t i = 0; i < range.count; ++i)
        left -= storage.holds.gone(range.first + i) ? 0 : 1;
    }
  }
  return left;
}

absl::flat_hash_map<SessionId, uint64_t> Storages::BytesBySession() const {
  absl::flat_hash_map<SessionId, uint64_t> bytes;
  for (const auto& [id, storage] : storages_) {
    if (storage.failure) continue;
    uint64_t& sum = bytes[storage.session];
    sum = AddSizes(sum, MultiplySizes(storage.shard_bytes, ShardsLeft(storage)));
  }
  return bytes;
}

}  // namespace gangway::controller
