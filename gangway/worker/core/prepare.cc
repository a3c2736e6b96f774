// Host-side work of nodes: prepares each node's part on this worker before its inputs exist.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"
#include "gangway/worker/core/worker_core.h"

namespace gangway::worker {
namespace {

// Keeps the first of equal elements, in time in proportion to their number.
void DropRepeats(std::vector<StorageId>& list) {
  if (list.size() < 2) return;
  absl::flat_hash_set<StorageId> seen;
  std::erase_if(list, [&seen](StorageId value) { return !seen.insert(value).second; });
}

std::vector<StorageId> Storages(const google::protobuf::RepeatedField<uint64_t>& numbers) {
  std::vector<StorageId> storages;
  for (uint64_t number : numbers) storages.emplace_back(number);
  return storages;
}

CreateStorage MakeStorage(StorageId storage, SessionId session, const wire::ArraySpec& spec) {
  return {.storage = storage,
          .session = session,
          .element_type = spec.element_type(),
          .dims = {spec.shard_dims().begin(), spec.shard_dims().end()},
          .shard_bytes = spec.shard_bytes(),
          .memory_kind = spec.memory_kind()};
}

}  // namespace

void WorkerCore::Prepare(const wire::Node& message) {
  Ordinal ordinal(message.ordinal());
  auto [entry, is_new] = nodes_.try_emplace(ordinal);
  if (!is_new)
    return Emit(Complain{absl::StrCat("Node ", ordinal, " arrived twice; the second was ignored")});
  Node& node = entry->second;
  node.session = SessionId(message.session());
  std::optional<wire::Failure> failure;
  switch (message.kind_case()) {
    case wire::Node::kLaunch:
      failure = PrepareLaunchNode(message, node);
      break;
    case wire::Node::kUpload:
      failure = PrepareUploadNode(message, node);
      break;
    case wire::Node::kCopy:
      failure = PrepareCopyNode(message, node);
      break;
    case wire::Node::kFetch:
      failure = PrepareFetchNode(message, node);
      break;
    case wire::Node::KIND_NOT_SET:
      failure = wire::MakeFailure(absl::StatusCode::kUnimplemented,
                                  "The node's kind is unknown to this worker.");
      break;
  }
  DropRepeats(node.inputs);
  if (!failure) return;
  Locate(ordinal, node.program, *failure);
  node.failure = std::move(failure);
  PoisonResultsOf(message, node);
}

std::optional<wire::Failure> WorkerCore::PrepareLaunchNode(const wire::Node& message, Node& node) {
  const wire::Launch& launch = message.launch();
  node.kind = Node::Kind::kLaunch;
  node.executable = ExecutableId(launch.executable());
  auto entry = executables_.find(node.executable);
  if (entry == executables_.end()) {
    return wire::MakeFailure(
        absl::StatusCode::kDataLoss,
        absl::StrCat("Executable ", node.executable, " is not loaded on ", identity_.name,
                     "; the worker was restarted, or it was unloaded."));
  }
  const Executable& executable = entry->second;
  node.program = executable.label;
  if (launch.results_size() != static_cast<int>(executable.results.size())) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("The launch names ", launch.results_size(), " results and ",
                     executable.label->name, " has ", executable.results.size(), "."));
  }
  PrepareLaunch prepare{.ordinal = Ordinal(message.ordinal()),
                        .executable = node.executable,
                        .program = executable.label,
                        .results = Storages(launch.results()),
                        .donated = {launch.donated().begin(), launch.donated().end()},
                        .launch_id = launch.launch_id()};
  for (size_t i = 0; i < executable.devices.size(); ++i) {
    if (executable.devices[i] < 0) continue;
    prepare.positions.push_back({static_cast<uint32_t>(i), executable.devices[i], {}});
  }
  std::vector<ShardKey> shards;
  for (int k = 0; k < launch.arguments_size(); ++k) {
    if (auto failure = Resolve(launch.arguments(k), executable.devices,
                               absl::StrCat("Argument ", k), node, shards))
      return failure;
    for (LaunchPosition& position : prepare.positions)
      position.arguments.push_back(shards[position.position]);
  }
  for (uint32_t k : prepare.donated) {
    if (k >= static_cast<uint32_t>(launch.arguments_size())) {
      return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                               absl::StrCat("Argument ", k, " cannot be donated: the launch has ",
                                            launch.arguments_size(), "."));
    }
    for (const LaunchPosition& position : prepare.positions)
      Consume(position.arguments[k], prepare.ordinal);
  }
  for (int r = 0; r < launch.results_size(); ++r) {
    const wire::TensorSpec& spec = executable.results[r];
    CreateStorage result{.storage = StorageId(launch.results(r)),
                         .session = node.session,
                         .element_type = spec.element_type(),
                         .dims = {spec.shard_dims().begin(), spec.shard_dims().end()},
                         .shard_bytes = spec.shard_bytes(),
                         .memory_kind = spec.memory_kind()};
    if (auto failure = AddResult(node, std::move(result), executable.devices)) return failure;
  }
  if (prepare.positions.empty()) return std::nullopt;
  node.prepared = true;
  Emit(std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::PrepareUploadNode(const wire::Node& message, Node& node) {
  const wire::Upload& upload = message.upload();
  node.kind = Node::Kind::kUpload;
  std::vector<int> devices = LocalDevices(upload.spec().devices());
  UploadKey key{node.session, upload.upload()};
  auto failure = AddResult(
      node, MakeStorage(StorageId(upload.storage()), node.session, upload.spec()), devices);
  if (failure || node.outputs.empty()) {
    DropUnclaimed(key);
    return failure;
  }
  Upload& state = uploads_[key];
  if (state.ordinal != Ordinal()) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Upload ", upload.upload(), " was declared twice."));
  }
  node.upload = upload.upload();
  state.ordinal = Ordinal(message.ordinal());
  state.storage = StorageId(upload.storage());
  state.shard_bytes = upload.spec().shard_bytes();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] >= 0) state.wanted.push_back(i);
  }
  TryFill(key, state);  // detects a failure or a wrong size of bytes that arrived earlier
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::PrepareCopyNode(const wire::Node& message, Node& node) {
  const wire::Copy& copy = message.copy();
  node.kind = Node::Kind::kCopy;
  std::vector<int> from = LocalDevices(copy.source_spec().devices());
  std::vector<int> to = LocalDevices(copy.spec().devices());
  if (from.size() != to.size()) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("A copy from ", from.size(), " to ", to.size(),
                                          " shards needs equal counts."));
  }
  std::vector<ShardKey> shards;
  if (auto failure = Resolve(copy.source(), from, "The source", node, shards)) return failure;
  PrepareCopy prepare{.ordinal = Ordinal(message.ordinal()),
                      .session = node.session,
                      .memory_kind = copy.spec().memory_kind(),
                      .token = copy.token()};
  for (size_t i = 0; i < from.size(); ++i)
    AddShard(copy, static_cast<uint32_t>(i), shards[i], from[i], to[i], prepare);
  node.transfers = !prepare.sends.empty() || !prepare.receives.empty();
  if (auto failure =
          AddResult(node, MakeStorage(StorageId(copy.storage()), node.session, copy.spec()), to))
    return failure;
  if (prepare.moves.empty() && !node.transfers) return std::nullopt;
  node.prepared = true;
  Emit(std::move(prepare));
  return std::nullopt;
}

// `from`, `to`: local devices, -1 on another worker.
void WorkerCore::AddShard(const wire::Copy& copy, uint32_t shard, const ShardKey& source, int from,
                          int to, PrepareCopy& prepare) {
  ShardKey result{StorageId(copy.storage()), shard};
  auto index = static_cast<int>(shard);
  if (from >= 0 && to >= 0) {
    prepare.moves.push_back({source, result, from, to});
  } else if (from >= 0) {
    prepare.sends.push_back({source, from, shard, DeviceId(copy.spec().devices(index))});
  } else if (to >= 0) {
    prepare.receives.push_back({result, to, DeviceId(copy.source_spec().devices(index))});
  }
}

std::optional<wire::Failure> WorkerCore::PrepareFetchNode(const wire::Node& message, Node& node) {
  const wire::Fetch& fetch = message.fetch();
  node.kind = Node::Kind::kFetch;
  node.fetch = fetch.fetch();
  std::vector<int> devices = LocalDevices(fetch.devices());
  PrepareFetch prepare{
      .ordinal = Ordinal(message.ordinal()), .session = node.session, .fetch = fetch.fetch()};
  for (uint32_t i = 0; i < devices.size(); ++i) {
    if (devices[i] < 0) continue;
    node.fetch_shards.push_back(i);
    prepare.parts.push_back({{}, devices[i], i});
  }
  std::vector<ShardKey> shards;
  if (auto failure = Resolve(fetch.source(), devices, "The fetch", node, shards)) return failure;
  size_t next = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] >= 0) prepare.parts[next++].from = shards[i];
  }
  if (prepare.parts.empty()) return std::nullopt;
  node.prepared = true;
  Emit(std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::Resolve(const wire::ArrayRef& ref,
                                                 const std::vector<int>& devices,
                                                 const std::string& what, Node& node,
                                                 std::vector<ShardKey>& shards) {
  shards.assign(devices.size(), {});
  size_t position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      if (devices[position] < 0) continue;
      shards[position] = {StorageId(run.storage()), run.first() + i};
      if (auto failure = CheckShard(shards[position], devices[position], what)) return failure;
      node.inputs.push_back(shards[position].storage);
    }
  }
  if (position == devices.size()) return std::nullopt;
  return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(what, " has ", position, " shards where ", devices.size(),
                                        " devices each need one."));
}

std::optional<wire::Failure> WorkerCore::CheckShard(const ShardKey& key, int device,
                                                    const std::string& what) const {
  auto entry = storages_.find(key.storage);
  if (entry == storages_.end()) {
    return wire::MakeFailure(
        absl::StatusCode::kDataLoss,
        absl::StrCat(what, " refers to storage ", key.storage, ", which ", identity_.name,
                     " does not hold; the worker was restarted and lost its arrays, or "
                     "the storage was freed."));
  }
  const Storage& storage = entry->second;
  if (storage.devices.empty()) return std::nullopt;  // failed before its shards were known
  if (key.shard >= storage.devices.size()) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat(what, " refers to shard ", key.shard, " of storage ", key.storage,
                     ", which has ", storage.devices.size(), "."));
  }
  if (!storage.consumed_by.empty() && storage.consumed_by[key.shard] != Ordinal()) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat(what, " was already donated to gang ", storage.consumed_by[key.shard], "."));
  }
  int actual = storage.devices[key.shard];
  if (actual == device) return std::nullopt;
  return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(what, " has shard ", key.shard, " of storage ", key.storage,
                                        " on ", DeviceName(actual), " where ", DeviceName(device),
                                        " needs it; copy it there first."));
}

// Nodes that come later cannot use the shard.
void WorkerCore::Consume(const ShardKey& key, Ordinal launch) {
  auto entry = storages_.find(key.storage);
  if (entry == storages_.end()) return;
  Storage& storage = entry->second;
  storage.consumed_by.resize(storage.devices.size());
  if (key.shard < storage.consumed_by.size()) storage.consumed_by[key.shard] = launch;
}

std::optional<wire::Failure> WorkerCore::AddResult(Node& node, CreateStorage result,
                                                   const std::vector<int>& devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] >= 0) result.shards.push_back({static_cast<uint32_t>(i), devices[i]});
  }
  if (result.shards.empty()) return std::nullopt;
  auto [entry, is_new] = storages_.try_emplace(result.storage);
  if (!is_new) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Storage ", result.storage, " exists already."));
  }
  entry->second.devices = devices;
  node.outputs.push_back(result.storage);
  Emit(std::move(result));
  return std::nullopt;
}

// Readers of the results must find the node's failure, not an unknown storage.
void WorkerCore::PoisonResultsOf(const wire::Node& message, Node& node) {
  std::vector<StorageId> results;
  if (message.has_launch()) results = Storages(message.launch().results());
  if (message.has_upload()) results.emplace_back(message.upload().storage());
  if (message.has_copy()) results.emplace_back(message.copy().storage());
  for (StorageId result : results) {
    if (storages_.try_emplace(result).second) node.outputs.push_back(result);
  }
  for (StorageId output : node.outputs) Settle(output, node.failure);
}

std::vector<int> WorkerCore::LocalDevices(
    const google::protobuf::RepeatedField<uint32_t>& global) const {
  std::vector<int> local;
  local.reserve(global.size());
  for (uint32_t device : global) {
    auto entry = local_devices_.find(DeviceId(device));
    local.push_back(entry == local_devices_.end() ? -1 : entry->second);
  }
  return local;
}

std::string WorkerCore::DeviceName(int local) const {
  for (const auto& [id, index] : local_devices_) {
    if (index == local) return absl::StrCat("device ", id);
  }
  return "another worker";
}

}  // namespace gangway::worker
