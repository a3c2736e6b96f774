// Handles, storages and their references (OB-1).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

wire::FailureRef Refuse(std::string_view message, std::string_view advice = "") {
  return wire::Share(wire::MakeFailure(absl::StatusCode::kInvalidArgument, message, advice));
}

}  // namespace

const Controller::Array* Controller::FindArray(const Session& session, uint64_t handle) const {
  auto it = session.arrays.find(handle);
  return it == session.arrays.end() ? nullptr : &it->second;
}

wire::FailureRef Controller::FailureOf(const Array& array) const {
  if (array.failure) return array.failure;
  for (const Run& run : array.runs) {
    if (run.count == 0) continue;
    if (auto failure = FailureOf(storages_.at(run.storage), run)) return failure;
  }
  return nullptr;
}

// The failure of the first spoiled shard of the run.
wire::FailureRef Controller::FailureOf(const Storage& storage, const Run& run) {
  if (storage.failure || storage.lost.empty()) return storage.failure;
  for (uint32_t shard = run.first; shard < run.first + run.count; ++shard) {
    if (storage.lost[shard]) return storage.lost[shard];
  }
  return nullptr;
}

// Whether an operation may use this array as input: known here, not freed, not consumed, not
// spoiled.
wire::FailureRef Controller::CheckUsable(const Session& session, uint64_t handle) const {
  const Array* array = FindArray(session, handle);
  if (array == nullptr) {
    return Refuse(
        absl::StrCat("array handle ", handle, " is not known in this session"),
        "It was dropped before this use, or belongs to another session; keep a reference to it.");
  }
  for (const Run& run : array->runs) {
    if (run.count == 0 || storages_.at(run.storage).holds.any_gone(run.range()))
      return ConsumedFailure(handle);
  }
  return FailureOf(*array);
}

wire::FailureRef Controller::ConsumedFailure(uint64_t handle) {
  return Refuse(absl::StrCat("Array has been deleted or donated (handle ", handle, ")"),
                "Use the results of the call that it was donated to, or do not donate it.");
}

bool Controller::CanBind(SessionId id, Session& session, uint64_t handle) const {
  return handle != 0 && !session.arrays.contains(handle) &&
         session.arrays.size() < config_.arrays_max;
}

// A handle in use keeps its array: the client broke the rule that handles are not reused.
void Controller::Bind(SessionId id, Session& session, uint64_t handle, Array array,
                      Actions& actions) {
  for (const Run& run : array.runs) storages_.at(run.storage).holds.Hold(run.range());
  if (CanBind(id, session, handle)) {
    session.arrays[handle] = std::move(array);
    return;
  }
  for (const Run& run : array.runs) LetGo(run, actions);
}

void Controller::BindFailure(SessionId id, Session& session, uint64_t handle,
                             wire::FailureRef failure, Actions& actions) {
  Array array;
  array.failure = std::move(failure);
  Bind(id, session, handle, std::move(array), actions);
}

StorageId Controller::NewStorage(SessionId session, const wire::ArraySpec& spec, Ordinal producer) {
  StorageId id(next_storage_++);
  Storage& storage = storages_[id];
  storage.session = session;
  storage.holds = ShardHolds(static_cast<uint32_t>(spec.devices_size()));
  storage.producer = producer;
  storage.shard_bytes = spec.shard_bytes();
  storage.devices = {spec.devices().begin(), spec.devices().end()};
  storage.islands = IslandsOf(spec.devices());
  return id;
}

void Controller::Unbind(Session& session, uint64_t handle, bool consume, Actions& actions) {
  auto it = session.arrays.find(handle);
  if (it == session.arrays.end()) return;
  Array array = std::move(it->second);
  session.arrays.erase(it);
  for (const Run& run : array.runs) {
    if (consume) Consume(run, actions);
    LetGo(run, actions);
  }
}

// From now on each shard of the array can be dropped alone.
void Controller::Split(Array& array) {
  if (std::exchange(array.is_split, true)) return;
  std::vector<Run> single;
  for (const Run& run : array.runs) {
    if (run.count == 1) {
      single.push_back(run);
      continue;
    }
    ShardHolds& holds = storages_.at(run.storage).holds;
    for (uint32_t i = 0; i < run.count; ++i) {
      single.push_back({run.storage, run.first + i, 1, run.position + i});
      holds.Hold(single.back().range());
    }
    std::vector<ShardRange> freed;  // none: all are held
    holds.LetGo(run.range(), freed);
  }
  array.runs = std::move(single);
}

// The shards are freed once no earlier node uses them; arrays that share them become unusable.
void Controller::Consume(const Run& run, Actions& actions) {
  if (run.count == 0) return;
  Storage& storage = storages_.at(run.storage);
  std::vector<ShardRange> freed;
  storage.holds.Take(run.range(), freed);
  SendFree(storage, run.storage, freed, actions);
}

void Controller::LetGo(const Run& run, Actions& actions) {
  if (run.count == 0) return;
  Storage& storage = storages_.at(run.storage);
  std::vector<ShardRange> freed;
  storage.holds.LetGo(run.range(), freed);
  SendFree(storage, run.storage, freed, actions);
  if (storage.holds.held()) return;
  if (storage.waiters.empty()) storages_.erase(run.storage);  // otherwise Settle() erases it
}

void Controller::SendFree(const Storage& storage, StorageId id,
                          const std::vector<ShardRange>& freed, Actions& actions) {
  if (freed.empty()) return;
  auto& out = actions.to_islands;
  for (uint32_t island : storage.islands) {
    if (out.empty() || out.back().first != island || !out.back().second.has_free()) {
      out.emplace_back(island, wire::IslandItem());
      out.back().second.mutable_free();
    }
    wire::Free& free = *out.back().second.mutable_free();
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

void Controller::FillRef(const Array& array, wire::ArrayRef& ref) {
  for (const Run& run : array.runs) {
    wire::ShardRun* out = ref.add_runs();
    out->set_storage(run.storage.number());
    out->set_first(run.first);
    out->set_count(run.count);
  }
}

Ordinal Controller::NewNode(SessionId session_id, Session& session, std::vector<StorageId> results,
                            std::vector<uint32_t> islands) {
  const Ordinal ordinal = next_ordinal_;
  next_ordinal_ = Ordinal(ordinal.number() + 1);
  ++session.pending;
  nodes_[ordinal] = {.session = session_id,
                     .number = ++session.numbered,
                     .results = std::move(results),
                     .open_islands = std::move(islands)};
  return ordinal;
}

std::vector<uint32_t> Controller::IslandsOf(
    const google::protobuf::RepeatedField<uint32_t>& devices) const {
  std::vector<uint32_t> islands;
  std::vector<bool> seen(islands_.size());
  for (uint32_t device : devices) {
    auto it = devices_.find(DeviceId(device));
    if (it == devices_.end() || seen[it->second.island]) continue;
    seen[it->second.island] = true;
    islands.push_back(it->second.island);
  }
  return islands;
}

// Islands that some shard leaves when shard i is copied from from[i] to to[i].
std::vector<uint32_t> Controller::CrossingSources(
    const google::protobuf::RepeatedField<uint32_t>& from,
    const google::protobuf::RepeatedField<uint32_t>& to) const {
  google::protobuf::RepeatedField<uint32_t> leaving;
  for (int i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (devices_.at(DeviceId(from.Get(i))).island != devices_.at(DeviceId(to.Get(i))).island)
      leaving.Add(from.Get(i));
  }
  return IslandsOf(leaving);
}

// Workers, as indices into workers_, that some shard leaves for another island.
std::vector<size_t> Controller::Senders(const google::protobuf::RepeatedField<uint32_t>& from,
                                        const google::protobuf::RepeatedField<uint32_t>& to) const {
  std::vector<size_t> senders;
  std::vector<bool> seen(workers_.size());
  for (int i = 0; i < std::min(from.size(), to.size()); ++i) {
    const DeviceState& source = devices_.at(DeviceId(from.Get(i)));
    if (source.island == devices_.at(DeviceId(to.Get(i))).island) continue;
    if (seen[source.owner]) continue;
    seen[source.owner] = true;
    senders.push_back(source.owner);
  }
  return senders;
}

bool Controller::CrossesWorkers(const google::protobuf::RepeatedField<uint32_t>& from,
                                const google::protobuf::RepeatedField<uint32_t>& to) const {
  for (int i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (devices_.at(DeviceId(from.Get(i))).owner != devices_.at(DeviceId(to.Get(i))).owner)
      return true;
  }
  return false;
}

wire::FailureRef Controller::CheckDevices(
    const google::protobuf::RepeatedField<uint32_t>& devices) const {
  if (devices.empty()) {
    return Refuse("the operation names no device");
  }
  absl::flat_hash_set<uint32_t> distinct;
  for (uint32_t device : devices) {
    if (!distinct.insert(device).second) {  // memory is charged once per device
      return Refuse(absl::StrCat("the operation names device ", device, " twice"));
    }
    if (!devices_.contains(DeviceId(device))) {
      return Refuse(absl::StrCat("device ", device,
                                 " is not part of this cluster, which has devices 0 to ",
                                 devices_.size() - 1));
    }
  }
  return nullptr;
}

}  // namespace gangway::controller
