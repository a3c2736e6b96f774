// Implementation of handles.h.
#include "gangway/client/handles.h"

#include <algorithm>
#include <chrono>

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/client/host_callbacks.h"
#include "gangway/client/op_fields.h"
#include "gangway/wire/failure.h"

namespace gangway::client {
namespace {

// How long an operation without a waiter (Drop) may wait for another one to be sent with.
constexpr std::chrono::milliseconds kSoon{4};
constexpr size_t kDropHandlesMax = 4096;  // of one operation

void FillCall(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
              std::span<const ArrayHandle> results, const CallOptions& options, wire::CallOp& op) {
  op.set_executable(NumberOf(executable));
  AddNumbers(arguments, *op.mutable_arguments());
  AddNumbers(results, *op.mutable_results());
  AddAll(options.keep, op.mutable_keep());
  op.set_launch_id(options.launch_id);
  op.set_callback_depth(HostCallbacks::Depth());
  AddGathered(options.gathered, *op.mutable_gathered());
}

void FillRegroup(const std::vector<Client::Regrouped>& results, wire::RegroupOp& op) {
  for (const Client::Regrouped& result : results) {
    wire::RegroupOp::Result* to = op.add_results();
    to->set_array(NumberOf(result.array));
    to->set_replica_of(NumberOf(result.replica_of));
    for (const ShardOf& shard : result.shards) {
      wire::RegroupOp::Shard* of = to->add_shards();
      of->set_array(NumberOf(shard.array));
      of->set_shard(shard.shard);
    }
  }
}

}  // namespace

void Handles::SetWorkers(absl::flat_hash_map<uint32_t, WorkerKey> worker_of) {
  worker_of_ = std::move(worker_of);
  for (const auto& [device, worker] : worker_of_) workers_.insert(worker);
}

std::optional<WorkerKey> Handles::WorkerOf(uint32_t device) const {
  const auto worker = worker_of_.find(device);
  if (worker == worker_of_.end()) return std::nullopt;
  return worker->second;
}

std::optional<WorkerKey> Handles::WorkerOf(ShardOf shard) const {
  MutexLock lock(mutex_);
  const std::optional<uint32_t> device = DeviceOf(shard);
  return device ? WorkerOf(*device) : std::nullopt;
}

std::optional<uint32_t> Handles::DeviceOf(ShardOf shard) const {
  const auto devices = arrays_.find(shard.array);
  if (devices == arrays_.end() || shard.shard >= devices->second->size()) return std::nullopt;
  return (*devices->second)[shard.shard];
}

void Handles::NoteArray(ArrayHandle array, Devices devices) {
  MutexLock lock(mutex_);
  arrays_[array] = std::move(devices);
}

void Handles::NoteArrays(std::span<const ArrayHandle> arrays, std::span<const Devices> devices) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < arrays.size() && i < devices.size(); ++i)
    if (devices[i] != nullptr) arrays_[arrays[i]] = devices[i];
}

void Handles::NoteExecutable(ExecutableHandle executable, Devices devices) {
  MutexLock lock(mutex_);
  executables_[executable] = std::move(devices);
}

Devices Handles::DevicesOf(ArrayHandle array) const {
  MutexLock lock(mutex_);
  const auto known = arrays_.find(array);
  return known == arrays_.end() ? nullptr : known->second;
}

Devices Handles::DevicesOf(ExecutableHandle executable) const {
  MutexLock lock(mutex_);
  const auto known = executables_.find(executable);
  return known == executables_.end() ? nullptr : known->second;
}

OperationId Handles::Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                          std::span<const ArrayHandle> results, CallOptions options) {
  const Submitter::Sending sending(submitter_);
  StatusCallback ended = std::move(options.ended);
  OperationId operation{};
  const auto fill = [&](wire::Op& op, OperationId number) {
    operation = number;
    FillCall(executable, arguments, results, options, *op.mutable_call());
  };
  if (!submitter_.Append(1, std::move(ended), fill).ok()) return operation;
  MutexLock lock(mutex_);
  const auto it = executables_.find(executable);
  if (it == executables_.end()) return operation;
  for (ArrayHandle result : results) arrays_[result] = it->second;
  return operation;
}

OperationId Handles::Copy(std::span<const ArrayHandle> sources,
                          std::span<const ArrayHandle> results, std::span<const uint32_t> devices,
                          const std::string& memory_kind, StatusCallback ended) {
  const Submitter::Sending sending(submitter_);
  OperationId operation{};
  const auto fill = [&](wire::Op& op, OperationId number) {
    operation = number;
    wire::CopyOp& copy = *op.mutable_copy();
    AddNumbers(sources, *copy.mutable_sources());
    AddNumbers(results, *copy.mutable_results());
    AddAll(devices, copy.mutable_devices());
    copy.set_memory_kind(memory_kind);
  };
  const uint64_t nodes = std::min(sources.size(), results.size());
  if (!submitter_.Append(nodes, std::move(ended), fill).ok()) return operation;
  const auto placement =
      std::make_shared<const std::vector<uint32_t>>(devices.begin(), devices.end());
  MutexLock lock(mutex_);
  for (ArrayHandle result : results) arrays_[result] = placement;
  return operation;
}

void Handles::Regroup(const std::vector<Client::Regrouped>& results) {
  const Submitter::Sending sending(submitter_);
  // Before the append: once it is appended, another thread may drop the sources.
  const std::vector<std::pair<ArrayHandle, Devices>> placements = PlacementsOf(results);
  const absl::Status appended = submitter_.Append(
      0, nullptr, [&](wire::Op& op) { FillRegroup(results, *op.mutable_regroup()); });
  if (!appended.ok()) return;
  MutexLock lock(mutex_);
  for (const auto& [array, devices] : placements) arrays_[array] = devices;
}

std::vector<std::pair<ArrayHandle, Devices>> Handles::PlacementsOf(
    const std::vector<Client::Regrouped>& results) const {
  std::vector<std::pair<ArrayHandle, Devices>> placements;
  MutexLock lock(mutex_);
  for (const Client::Regrouped& result : results) {
    if (result.replica_of != ArrayHandle()) continue;
    auto placement = std::make_shared<std::vector<uint32_t>>();
    for (const ShardOf& shard : result.shards) {
      if (const auto device = DeviceOf(shard)) placement->push_back(*device);
    }
    if (placement->size() == result.shards.size())
      placements.emplace_back(result.array, std::move(placement));
  }
  return placements;
}

// --- Drops ---

void Handles::Drop(std::span<const ArrayHandle> arrays) {
  if (!submitter_.lost().ok()) return;
  AppendDrop(arrays);
  SendSoon();  // after that: a timer that fires now would miss it
}

// Drops in a row are one operation.
void Handles::AppendDrop(std::span<const ArrayHandle> arrays) {
  const bool joined = submitter_.WithLast([&](wire::Op& last) {
    if (!last.has_drop() || last.drop().handles_size() + arrays.size() > kDropHandlesMax)
      return false;
    AddNumbers(arrays, *last.mutable_drop()->mutable_handles());
    return true;
  });
  if (!joined) {
    const absl::Status appended = submitter_.Append(0, nullptr, [&](wire::Op& op) {
      AddNumbers(arrays, *op.mutable_drop()->mutable_handles());
    });
    if (!appended.ok()) return;
  }
  MutexLock lock(mutex_);
  for (ArrayHandle array : arrays) {
    arrays_.erase(array);
    dropping_.erase(array);
  }
}

// Most arrays lose all their shards at once: then the one drop of their handle says it all.
void Handles::DropShard(ShardOf shard, uint32_t shard_count) {
  if (!submitter_.lost().ok()) return;
  bool is_last = shard_count == 1;
  if (!is_last) {
    MutexLock lock(mutex_);
    auto [entry, is_new] = dropping_.try_emplace(shard.array);
    Dropping& dropping = entry->second;
    if (is_new) dropping.left = shard_count;
    is_last = --dropping.left == 0;
    if (is_last) {
      dropping_.erase(entry);
    } else {
      if (dropping.unsent.empty()) shard_drops_.push_back(shard.array);
      dropping.unsent.push_back(shard.shard);
    }
  }
  if (is_last) AppendDrop(std::span<const ArrayHandle>(&shard.array, 1));
  SendSoon();
}

void Handles::AppendShardDrops() {
  MutexLock lock(mutex_);
  wire::DropShardsOp drops;
  for (ArrayHandle array : std::exchange(shard_drops_, {})) {
    const auto dropping = dropping_.find(array);
    if (dropping == dropping_.end()) continue;
    wire::DropShardsOp::Shards* shards = drops.add_arrays();
    shards->set_array(NumberOf(array));
    AddAll(std::span<const uint32_t>(dropping->second.unsent), shards->mutable_shards());
    dropping->second.unsent.clear();
  }
  // Under this lock, so that the drop of the whole handle comes after it.
  if (drops.arrays_size() > 0) {
    submitter_
        .Append(0, nullptr, [&](wire::Op& op) { *op.mutable_drop_shards() = std::move(drops); })
        .IgnoreError();
  }
}

void Handles::SendSoon() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(send_soon_, true)) return;
  }
  loop_->PostAt(Clock::now() + kSoon, [this] {
    {
      MutexLock lock(mutex_);
      send_soon_ = false;
    }
    AppendShardDrops();
    submitter_.SendBatches();
  });
}

void Handles::Delete(std::span<const ArrayHandle> arrays) {
  const Submitter::Sending sending(submitter_);
  const absl::Status appended = submitter_.Append(0, nullptr, [&](wire::Op& op) {
    AddNumbers(arrays, *op.mutable_delete_()->mutable_handles());
  });
  if (!appended.ok()) return;
  MutexLock lock(mutex_);
  for (ArrayHandle array : arrays) arrays_.erase(array);
}

void Handles::Poison(std::span<const ArrayHandle> arrays, const Status& why) {
  const Submitter::Sending sending(submitter_);
  submitter_
      .Append(0, nullptr,
              [&](wire::Op& op) {
                AddNumbers(arrays, *op.mutable_poison()->mutable_arrays());
                *op.mutable_poison()->mutable_failure() = wire::ToFailure(why);
              })
      .IgnoreError();
}

void Handles::DropExecutables(std::span<const ExecutableHandle> executables) {
  const Submitter::Sending sending(submitter_);
  const absl::Status appended = submitter_.Append(0, nullptr, [&](wire::Op& op) {
    AddNumbers(executables, *op.mutable_drop_executables()->mutable_handles());
  });
  if (!appended.ok()) return;
  MutexLock lock(mutex_);
  for (ExecutableHandle handle : executables) executables_.erase(handle);
}

void Handles::Clear() {
  MutexLock lock(mutex_);
  arrays_.clear();
  executables_.clear();
  dropping_.clear();
  shard_drops_.clear();
}

}  // namespace gangway::client
