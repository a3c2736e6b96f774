// Implementation of storages.h.
#include "gangway/worker/core/storages.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::worker {

std::optional<wire::Failure> Storages::Create(CreateStorage storage,
                                              const LocalPositions& positions,
                                              std::vector<Action>& actions) {
  auto [entry, is_new] = storages_.try_emplace(storage.storage);
  if (!is_new) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Storage ", storage.storage, " exists already."));
  }
  entry->second.shard_count = positions.count;
  entry->second.held = storage.held;
  entry->second.shards.reserve(positions.local.size());
  storage.shards.reserve(positions.local.size());
  for (const auto& [number, device] : positions.local) {
    entry->second.shards.push_back({number, device, {}});
    storage.shards.push_back({number, device});
  }
  actions.emplace_back(std::move(storage));
  return std::nullopt;
}

std::optional<wire::Failure> Storages::Resolve(const wire::ArrayRef& ref,
                                               const LocalPositions& positions,
                                               const std::string& what, const Fleet& fleet,
                                               std::vector<ShardKey>& shards) const {
  shards.clear();
  shards.reserve(positions.local.size());
  size_t begin = 0;  // position of the run's first shard
  for (const wire::ShardRun& run : ref.runs()) {
    const size_t end = std::min<size_t>(begin + run.count(), positions.count);
    while (shards.size() < positions.local.size()) {
      const auto& [number, device] = positions.local[shards.size()];
      if (number >= end) break;
      const auto at = static_cast<uint32_t>(number - begin);
      shards.push_back({StorageId(run.storage()), run.first() + at});
      if (auto failure = Check(shards.back(), device, what, fleet)) return failure;
    }
    begin = end;
  }
  if (begin == positions.count) return std::nullopt;
  return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(what, " has ", begin, " shards where ", positions.count,
                                        " devices each need one."));
}

std::optional<wire::Failure> Storages::Check(ShardKey& key, int device, const std::string& what,
                                             const Fleet& fleet) const {
  const auto entry = storages_.find(key.storage);
  if (entry == storages_.end()) {
    return wire::MakeFailure(
        absl::StatusCode::kDataLoss,
        absl::StrCat(what, " refers to storage ", key.storage, ", which ", worker_name_,
                     " does not hold; the worker was restarted and lost its arrays, or "
                     "the storage was freed."));
  }
  const Storage& storage = entry->second;
  key.held = storage.held;
  if (storage.shard_count == 0) return std::nullopt;  // failed before its shards were known
  if (key.shard >= storage.shard_count) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat(what, " refers to shard ", key.shard, " of storage ",
                                          key.storage, ", which has ", storage.shard_count, "."));
  }
  const Storage::Shard* const shard = storage.Find(key.shard);
  if (shard != nullptr && shard->consumed_by != Ordinal()) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat(what, " was already donated to gang ", shard->consumed_by, "."));
  }
  const int actual = shard == nullptr ? -1 : shard->device;
  if (actual == device) return std::nullopt;
  return wire::MakeFailure(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(what, " has shard ", key.shard, " of storage ", key.storage, " on ",
                   fleet.DeviceName(actual), " where ", fleet.DeviceName(device),
                   " needs it; copy it there first."));
}

void Storages::Consume(const ShardKey& key, Ordinal launch) {
  const auto entry = storages_.find(key.storage);
  if (entry == storages_.end()) return;
  if (Storage::Shard* const shard = entry->second.Find(key.shard)) shard->consumed_by = launch;
}

Storages::State Storages::StateOf(StorageId id) const {
  const auto entry = storages_.find(id);
  return entry == storages_.end() ? State::kUnknown : entry->second.state;
}

const wire::Failure* Storages::FailureOf(StorageId id) const {
  const auto entry = storages_.find(id);
  if (entry == storages_.end() || entry->second.state != State::kFailed) return nullptr;
  return &entry->second.failure;
}

bool Storages::HasShards(StorageId id) const {
  const auto entry = storages_.find(id);
  return entry != storages_.end() &&
         std::ranges::any_of(entry->second.shards,
                             [](const Storage::Shard& shard) { return shard.device >= 0; });
}

Held<HeldShards> Storages::HeldOf(StorageId id) const {
  const auto entry = storages_.find(id);
  return entry == storages_.end() ? Held<HeldShards>() : entry->second.held;
}

void Storages::Settle(StorageId id, const std::optional<wire::Failure>& failure,
                      std::vector<Action>& actions) {
  const auto entry = storages_.find(id);
  if (entry == storages_.end()) return;
  Storage& storage = entry->second;
  if (storage.state == State::kFailed) return;
  if (!failure) {
    storage.state = State::kPresent;
  } else {
    storage.state = State::kFailed;
    storage.failure = *failure;
    actions.emplace_back(PoisonStorage{id, storage.held, *failure});
  }
  Wake(storage);
}

void Storages::PoisonAll(const wire::Failure& failure, std::vector<Action>& actions) const {
  for (const auto& [id, storage] : storages_)
    actions.emplace_back(PoisonStorage{id, storage.held, failure});
}

void Storages::Free(StorageId id, std::vector<Action>& actions) {
  const auto entry = storages_.find(id);
  if (entry == storages_.end()) return;  // no shard of it is on this worker
  Wake(entry->second);
  actions.emplace_back(DropStorage{id, entry->second.held});
  storages_.erase(entry);
}

void Storages::FreeShards(const wire::ShardRun& run, std::vector<Action>& actions) {
  const auto entry = storages_.find(StorageId(run.storage()));
  if (entry == storages_.end()) return;
  std::vector<Storage::Shard>& shards = entry->second.shards;
  DropShards drop{.storage = entry->first, .held = entry->second.held};
  for (auto it = std::ranges::lower_bound(shards, run.first(), {}, &Storage::Shard::number);
       it != shards.end() && it->number - run.first() < run.count(); ++it) {
    if (it->device < 0) continue;
    it->device = -1;
    drop.shards.push_back(it->number);
  }
  if (!drop.shards.empty()) actions.emplace_back(std::move(drop));
}

void Storages::Await(StorageId id, Ordinal node) {
  const auto entry = storages_.find(id);
  if (entry != storages_.end()) entry->second.waiters.push_back(node);
}

void Storages::Wake(Storage& storage) {
  woken_.insert(woken_.end(), storage.waiters.begin(), storage.waiters.end());
  storage.waiters.clear();
}

const Storages::Storage::Shard* Storages::Storage::Find(uint32_t number) const {
  const auto found = std::ranges::lower_bound(shards, number, {}, &Shard::number);
  return found == shards.end() || found->number != number ? nullptr : &*found;
}

}  // namespace gangway::worker
