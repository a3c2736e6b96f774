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

// `spec`: an ArraySpec or TensorSpec.
template <typename Spec>
CreateStorage MakeStorage(StorageId storage, SessionId session, const Spec& spec) {
  return {.storage = storage,
          .session = session,
          .element_type = spec.element_type(),
          .dims = {spec.shard_dims().begin(), spec.shard_dims().end()},
          .shard_bytes = spec.shard_bytes(),
          .memory_kind = spec.memory_kind(),
          .held = Held<HeldShards>::New()};
}

}  // namespace

void WorkerCore::Prepare(wire::Node& message) {
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
    case wire::Node::kPut:
      failure = PreparePutNode(message, node);
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
  identity_.Locate(ordinal, node.program, *failure);
  node.failure = std::move(failure);
  PoisonResultsOf(message, node);
}

std::optional<wire::Failure> WorkerCore::PrepareLaunchNode(const wire::Node& message, Node& node) {
  const wire::Launch& launch = message.launch();
  node.kind = Node::Kind::kLaunch;
  node.executable = ExecutableId(launch.executable());
  const Executable* const found = executables_.Find(node.executable);
  if (found == nullptr) {
    return wire::MakeFailure(
        absl::StatusCode::kDataLoss,
        absl::StrCat("Executable ", node.executable, " is not loaded on ", identity_.name,
                     "; the worker was restarted, or it was unloaded."));
  }
  const Executable& executable = *found;
  node.program = executable.label;
  if (launch.results_size() != static_cast<int>(executable.results.size())) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("The launch names ", launch.results_size(), " results and ",
                     executable.label->name, " has ", executable.results.size(), "."));
  }
  if (executable.has_members && launch.island_epoch() < fleet_.epoch()) {
    return wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat("The gang was sent in epoch ", launch.island_epoch(), " of its island, and ",
                     identity_.name, " is in epoch ", fleet_.epoch(),
                     ": a worker that may be one of its members has started or ended since."),
        "Call the program again.");
  }
  PrepareLaunch prepare{.ordinal = Ordinal(message.ordinal()),
                        .executable = node.executable,
                        .held_executable = executable.held,
                        .program = executable.label,
                        .donated = {launch.donated().begin(), launch.donated().end()},
                        .launch_id = launch.launch_id(),
                        .callback_depth = launch.callback_depth()};
  prepare.positions.reserve(executable.positions.local.size());
  for (const auto& [position, device] : executable.positions.local) {
    prepare.positions.push_back({position, device, {}});
    prepare.positions.back().arguments.reserve(static_cast<size_t>(launch.arguments_size()));
  }
  std::vector<ShardKey> shards;
  for (int k = 0; k < launch.arguments_size(); ++k) {
    if (auto failure = Resolve(launch.arguments(k), executable.positions,
                               absl::StrCat("Argument ", k), node, shards))
      return failure;
    for (size_t i = 0; i < shards.size(); ++i) prepare.positions[i].arguments.push_back(shards[i]);
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
    CreateStorage result =
        MakeStorage(StorageId(launch.results(r)), node.session, executable.results[r]);
    prepare.results.push_back({.storage = result.storage, .held = result.held});
    if (auto failure = AddResult(node, std::move(result), executable.positions)) return failure;
  }
  if (prepare.positions.empty()) return std::nullopt;
  if (!executable.held.has_record()) return executable.failure;  // it was not even loaded
  HoldTask(node, std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::PrepareUploadNode(const wire::Node& message, Node& node) {
  const wire::Upload& upload = message.upload();
  node.kind = Node::Kind::kUpload;
  const LocalPositions positions = fleet_.PositionsOf(upload.spec().devices());
  UploadKey key{node.session, UploadId(upload.upload())};
  auto failure = AddResult(
      node, MakeStorage(StorageId(upload.storage()), node.session, upload.spec()), positions);
  if (failure || node.outputs.empty()) {
    DropUnclaimed(key);
    return failure;
  }
  Upload& state = uploads_[key];
  if (state.ordinal != Ordinal()) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Upload ", upload.upload(), " was declared twice."));
  }
  node.upload = key.upload;
  state.ordinal = Ordinal(message.ordinal());
  state.storage = StorageId(upload.storage());
  state.shard_bytes = upload.spec().shard_bytes();
  for (const LocalPositions::Position& position : positions.local)
    state.wanted.push_back(position.number);
  TryFill(key, state);  // detects a failure or a wrong size of bytes that arrived earlier
  return std::nullopt;
}

// All its bytes are here before its release (GS-4).
std::optional<wire::Failure> WorkerCore::PreparePutNode(wire::Node& message, Node& node) {
  node.kind = Node::Kind::kPut;
  const LocalPositions positions = fleet_.PositionsOf(message.put().devices());
  PreparePut prepare{.ordinal = Ordinal(message.ordinal()), .session = node.session, .parts = {}};
  for (wire::PutArray& array : *message.mutable_put()->mutable_arrays()) {
    CreateStorage result = MakeStorage(StorageId(array.storage()), node.session, array.tensor());
    const ShardKey key{.storage = result.storage, .held = result.held};
    if (array.shards_size() != message.put().devices_size()) {
      return wire::MakeFailure(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("An array came with the bytes of ", array.shards_size(), " shards for ",
                       message.put().devices_size(), " devices."));
    }
    if (auto failure = AddResult(node, std::move(result), positions)) return failure;
    for (const auto& [position, device] : positions.local) {
      PreparePut::Part& part = prepare.parts.emplace_back(PreparePut::Part{key, device, {}});
      part.to.shard = position;
      part.bytes = std::move(*array.mutable_shards(static_cast<int>(position)));
    }
  }
  if (!prepare.parts.empty()) HoldTask(node, std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::PrepareCopyNode(const wire::Node& message, Node& node) {
  const wire::Copy& copy = message.copy();
  node.kind = Node::Kind::kCopy;
  const LocalPositions from = fleet_.PositionsOf(copy.source_devices());
  const LocalPositions to = fleet_.PositionsOf(copy.devices());
  if (from.count != to.count) {
    return wire::MakeFailure(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("A copy from ", from.count, " to ", to.count, " shards needs equal counts."));
  }
  if (copy.arrays().empty()) return std::nullopt;
  PrepareCopy prepare{.ordinal = Ordinal(message.ordinal()),
                      .session = node.session,
                      .memory_kind = copy.memory_kind(),
                      .token = copy.token()};
  AddPositions(copy, from, to, prepare);
  for (const wire::CopiedArray& array : copy.arrays()) {
    if (auto failure = PrepareCopied(copy, array, from, to, node, prepare)) return failure;
  }
  node.transfers = !prepare.sends.empty() || !prepare.receives.empty();
  for (const PrepareCopy::Receive& receive : prepare.receives)
    node.sources.push_back(receive.from_device);
  if (prepare.moves.empty() && !node.transfers) return std::nullopt;
  HoldTask(node, std::move(prepare));
  return std::nullopt;
}

// Merges the two lists, each by position: one that is in both moves, one that is in `from` alone leaves, and one that
// is in `to` alone comes.
void WorkerCore::AddPositions(const wire::Copy& copy, const LocalPositions& from,
                              const LocalPositions& to, PrepareCopy& prepare) {
  auto sink = to.local.begin();
  auto receive_before = [&](size_t position) {
    for (; sink != to.local.end() && sink->number < position; ++sink) {
      const DeviceId sender(copy.source_devices(static_cast<int>(sink->number)));
      prepare.receives.push_back({{}, sink->device, sink->number, sender});
    }
  };
  for (const LocalPositions::Position& source : from.local) {
    receive_before(source.number);
    if (sink != to.local.end() && sink->number == source.number) {
      prepare.moves.push_back({{}, {}, source.device, (sink++)->device});
    } else {
      const DeviceId receiver(copy.devices(static_cast<int>(source.number)));
      prepare.sends.push_back({{}, source.device, source.number, receiver});
    }
  }
  receive_before(to.count);
}

std::optional<wire::Failure> WorkerCore::PrepareCopied(const wire::Copy& copy,
                                                       const wire::CopiedArray& array,
                                                       const LocalPositions& from,
                                                       const LocalPositions& to, Node& node,
                                                       PrepareCopy& prepare) {
  std::vector<ShardKey> shards;  // by position of `from`
  if (auto failure = Resolve(array.source(), from, "The source", node, shards)) return failure;
  CreateStorage result = MakeStorage(StorageId(array.storage()), node.session, array.spec());
  result.memory_kind = copy.memory_kind();
  // Each position of `from` moves or leaves, and each of `to` is moved to or receives, in their order.
  auto move = prepare.moves.begin();
  auto send = prepare.sends.begin();
  for (size_t i = 0; i < shards.size(); ++i) {
    const uint32_t position = from.local[i].number;
    const bool leaves = send != prepare.sends.end() && send->position == position;
    (leaves ? (send++)->from : (move++)->from).push_back(std::move(shards[i]));
  }
  move = prepare.moves.begin();
  auto receive = prepare.receives.begin();
  for (const LocalPositions::Position& position : to.local) {
    const bool comes = receive != prepare.receives.end() && receive->position == position.number;
    (comes ? (receive++)->to : (move++)->to)
        .push_back({.storage = result.storage, .shard = position.number, .held = result.held});
  }
  return AddResult(node, std::move(result), to);
}

std::optional<wire::Failure> WorkerCore::PrepareFetchNode(const wire::Node& message, Node& node) {
  const wire::Fetch& fetch = message.fetch();
  node.kind = Node::Kind::kFetch;
  node.fetch = FetchId(fetch.fetch());
  const LocalPositions positions = fleet_.PositionsOf(fetch.devices());
  PrepareFetch prepare{
      .ordinal = Ordinal(message.ordinal()), .session = node.session, .fetch = node.fetch};
  for (const auto& [position, device] : positions.local) {
    node.fetch_shards.push_back(position);
    prepare.parts.push_back({{}, device, position});
  }
  std::vector<ShardKey> shards;
  if (auto failure = Resolve(fetch.source(), positions, "The fetch", node, shards)) return failure;
  for (size_t i = 0; i < shards.size(); ++i) prepare.parts[i].from = shards[i];
  if (prepare.parts.empty()) return std::nullopt;
  HoldTask(node, std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::Resolve(const wire::ArrayRef& ref,
                                                 const LocalPositions& positions,
                                                 const std::string& what, Node& node,
                                                 std::vector<ShardKey>& shards) {
  shards.clear();
  shards.reserve(positions.local.size());
  size_t begin = 0;  // position of the run's first shard
  for (const wire::ShardRun& run : ref.runs()) {
    const size_t end = std::min<size_t>(begin + run.count(), positions.count);
    for (; shards.size() < positions.local.size(); node.inputs.push_back(shards.back().storage)) {
      const LocalPositions::Position& position = positions.local[shards.size()];
      if (position.number >= end) break;
      const auto at = static_cast<uint32_t>(position.number - begin);
      shards.push_back({StorageId(run.storage()), run.first() + at});
      if (auto failure = CheckShard(shards.back(), position.device, what)) return failure;
    }
    begin = end;
  }
  if (begin == positions.count) return std::nullopt;
  return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(what, " has ", begin, " shards where ", positions.count,
                                        " devices each need one."));
}

const WorkerCore::Storage::Shard* WorkerCore::Storage::Find(uint32_t number) const {
  auto found = std::ranges::lower_bound(shards, number, {}, &Shard::number);
  return found == shards.end() || found->number != number ? nullptr : &*found;
}

std::optional<wire::Failure> WorkerCore::CheckShard(ShardKey& key, int device,
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
                   fleet_.DeviceName(actual), " where ", fleet_.DeviceName(device),
                   " needs it; copy it there first."));
}

// Nodes that come later cannot use the shard.
void WorkerCore::Consume(const ShardKey& key, Ordinal launch) {
  auto entry = storages_.find(key.storage);
  if (entry == storages_.end()) return;
  if (Storage::Shard* const shard = entry->second.Find(key.shard)) shard->consumed_by = launch;
}

std::optional<wire::Failure> WorkerCore::AddResult(Node& node, CreateStorage result,
                                                   const LocalPositions& positions) {
  if (positions.local.empty()) return std::nullopt;
  auto [entry, is_new] = storages_.try_emplace(result.storage);
  if (!is_new) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Storage ", result.storage, " exists already."));
  }
  entry->second.shard_count = positions.count;
  entry->second.held = result.held;
  entry->second.shards.reserve(positions.local.size());
  result.shards.reserve(positions.local.size());
  for (const auto& [position, device] : positions.local) {
    entry->second.shards.push_back({position, device, {}});
    result.shards.push_back({position, device});
  }
  node.outputs.push_back(result.storage);
  Emit(std::move(result));
  return std::nullopt;
}

// Readers of the results must find the node's failure, not an unknown storage.
void WorkerCore::PoisonResultsOf(const wire::Node& message, Node& node) {
  std::vector<StorageId> results;
  if (message.has_launch()) results = Storages(message.launch().results());
  if (message.has_upload()) results.emplace_back(message.upload().storage());
  for (const wire::CopiedArray& array : message.copy().arrays())
    results.emplace_back(array.storage());
  for (const wire::PutArray& array : message.put().arrays()) results.emplace_back(array.storage());
  for (StorageId result : results) {
    if (storages_.try_emplace(result).second) node.outputs.push_back(result);
  }
  for (StorageId output : node.outputs) Settle(output, node.failure);
}

}  // namespace gangway::worker
