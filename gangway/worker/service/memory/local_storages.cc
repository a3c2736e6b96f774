// Implementation of local_storages.h.
#include "gangway/worker/service/memory/local_storages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::worker {

LocalStorages::LocalStorages(const Identity& identity, store::Ledger::OnBroken on_broken)
    : worker_(identity.name),
      ledger_(std::make_shared<store::Ledger>(identity.device_count, std::move(on_broken))) {}

void LocalStorages::Create(CreateStorage& action) const {
  auto storage = std::make_shared<HeldShards>();
  storage->spec = {action.element_type, std::move(action.dims)};
  storage->memory_kind = std::move(action.memory_kind);
  storage->shards.reserve(action.shards.size());
  for (const LocalShard& shard : action.shards) {
    store::SlotName name{action.storage, shard.shard, shard.device, action.session,
                         action.shard_bytes};
    storage->shards.emplace_back(shard.shard, std::make_shared<store::Slot>(name, ledger_));
  }
  action.held.Set(std::move(storage));
}

std::shared_ptr<store::Slot> LocalStorages::Find(const ShardKey& key, int device) const {
  if (const std::shared_ptr<HeldShards> shards = key.held.get()) {
    if (std::shared_ptr<store::Slot> slot = shards->Find(key.shard)) return slot;
  }
  // Expected only if the storage failed before its shards were known: its readers fail at their
  // release.
  auto slot =
      std::make_shared<store::Slot>(store::SlotName{key.storage, key.shard, device}, ledger_);
  slot->Fail(
      wire::MakeFailure(absl::StatusCode::kDataLoss,
                        absl::StrCat(slot->name().Text(), " is not held by ", worker_, ".")));
  return slot;
}

LocalStorages::Slots LocalStorages::FindAll(const std::vector<ShardKey>& keys, int device) const {
  Slots slots;
  slots.reserve(keys.size());
  for (const ShardKey& key : keys) slots.push_back(Find(key, device));
  return slots;
}

void LocalStorages::Poison(const PoisonStorage& action, const TaskEnvironment& environment) {
  const std::shared_ptr<HeldShards> storage = action.held.get();
  if (storage == nullptr) return;
  for (const auto& [index, slot] : storage->shards) FailSlot(environment, *slot, action.failure);
}

void LocalStorages::Drop(const DropStorage& action) {
  const std::shared_ptr<HeldShards> storage = action.held.Take();
  if (storage == nullptr) return;
  for (const auto& [index, slot] : storage->shards) slot->Empty();
}

void LocalStorages::Drop(const DropShards& action) {
  const std::shared_ptr<HeldShards> storage = action.held.get();
  if (storage == nullptr) return;
  std::erase_if(storage->shards, [&action](const auto& each) {
    if (!std::binary_search(action.shards.begin(), action.shards.end(), each.first)) return false;
    each.second->Empty();
    return true;
  });
}

}  // namespace gangway::worker
