// Host-side work of nodes: prepares each node's part on this worker before its inputs exist.
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

std::vector<StorageId> StorageIds(const google::protobuf::RepeatedField<uint64_t>& numbers) {
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

// Merges the two lists, each by position: one that is in both moves, one that is in `from` alone leaves, and one that
// is in `to` alone comes.
void AddPositions(const wire::Copy& copy, const LocalPositions& from, const LocalPositions& to,
                  PrepareCopy& prepare) {
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

// Adds an array's shards to each position of the copy. Each position of `from` moves or leaves, and each of `to` is
// moved to or receives, in their order. `shards`: of the source, by local position of `from`; they are moved from.
void AddArray(std::vector<ShardKey>& shards, const CreateStorage& result,
              const LocalPositions& from, const LocalPositions& to, PrepareCopy& prepare) {
  auto move = prepare.moves.begin();
  auto send = prepare.sends.begin();
  for (size_t i = 0; i < shards.size(); ++i) {
    const bool leaves = send != prepare.sends.end() && send->position == from.local[i].number;
    (leaves ? (send++)->from : (move++)->from).push_back(std::move(shards[i]));
  }
  move = prepare.moves.begin();
  auto receive = prepare.receives.begin();
  for (const LocalPositions::Position& position : to.local) {
    const bool comes = receive != prepare.receives.end() && receive->position == position.number;
    (comes ? (receive++)->to : (move++)->to)
        .push_back({.storage = result.storage, .shard = position.number, .held = result.held});
  }
}

void AddInputs(const std::vector<ShardKey>& shards, std::vector<StorageId>& inputs) {
  for (const ShardKey& shard : shards) inputs.push_back(shard.storage);
}

}  // namespace

void WorkerCore::Prepare(wire::Node& message) {
  Ordinal ordinal(message.ordinal());
  auto [entry, is_new] = nodes_.try_emplace(ordinal);
  if (!is_new)
    return Emit(
        LogWarning{absl::StrCat("Node ", ordinal, " arrived twice; the second was ignored")});
  Node& node = entry->second;
  node.session = SessionId(message.session());
  node.is_sequential = message.has_launch() && message.dispatch() == wire::DISPATCH_AFTER_RELEASE;
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
    if (auto failure = storages_.Resolve(launch.arguments(k), executable.positions,
                                         absl::StrCat("Argument ", k), fleet_, shards))
      return failure;
    AddInputs(shards, node.inputs);
    for (size_t i = 0; i < shards.size(); ++i) prepare.positions[i].arguments.push_back(shards[i]);
  }
  for (uint32_t k : prepare.donated) {
    if (k >= static_cast<uint32_t>(launch.arguments_size())) {
      return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                               absl::StrCat("Argument ", k, " cannot be donated: the launch has ",
                                            launch.arguments_size(), "."));
    }
    for (const LaunchPosition& position : prepare.positions)
      storages_.Consume(position.arguments[k], prepare.ordinal);
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
  const UploadKey key{node.session, UploadId(upload.upload())};
  auto failure = AddResult(
      node, MakeStorage(StorageId(upload.storage()), node.session, upload.spec()), positions);
  if (failure || node.outputs.empty()) {
    uploads_.DropUnclaimed(key, actions_);
    return failure;
  }
  std::vector<uint32_t> wanted;
  for (const LocalPositions::Position& position : positions.local)
    wanted.push_back(position.number);
  if (!uploads_.Claim(key, Ordinal(message.ordinal()), upload.spec().shard_bytes(), wanted,
                      actions_)) {
    return wire::MakeFailure(absl::StatusCode::kInvalidArgument,
                             absl::StrCat("Upload ", upload.upload(), " was declared twice."));
  }
  node.upload = key.upload;
  TryFill(key);  // its bytes may have failed already
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
  std::vector<ShardKey> shards;
  for (const wire::CopiedArray& array : copy.arrays()) {
    if (auto failure = storages_.Resolve(array.source(), from, "The source", fleet_, shards))
      return failure;
    AddInputs(shards, node.inputs);
    CreateStorage result = MakeStorage(StorageId(array.storage()), node.session, array.spec());
    result.memory_kind = copy.memory_kind();
    AddArray(shards, result, from, to, prepare);
    if (auto failure = AddResult(node, std::move(result), to)) return failure;
  }
  node.transfers = !prepare.sends.empty() || !prepare.receives.empty();
  for (const PrepareCopy::Receive& receive : prepare.receives)
    node.sources.push_back(receive.from_device);
  if (prepare.moves.empty() && !node.transfers) return std::nullopt;
  HoldTask(node, std::move(prepare));
  return std::nullopt;
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
  if (auto failure = storages_.Resolve(fetch.source(), positions, "The fetch", fleet_, shards))
    return failure;
  AddInputs(shards, node.inputs);
  for (size_t i = 0; i < shards.size(); ++i) prepare.parts[i].from = shards[i];
  if (prepare.parts.empty()) return std::nullopt;
  HoldTask(node, std::move(prepare));
  return std::nullopt;
}

std::optional<wire::Failure> WorkerCore::AddResult(Node& node, CreateStorage result,
                                                   const LocalPositions& positions) {
  if (positions.local.empty()) return std::nullopt;
  const StorageId id = result.storage;
  if (auto failure = storages_.Create(std::move(result), positions, actions_)) return failure;
  node.outputs.push_back(id);
  return std::nullopt;
}

// Readers of the results must find the node's failure, not an unknown storage.
void WorkerCore::PoisonResultsOf(const wire::Node& message, Node& node) {
  std::vector<StorageId> results;
  if (message.has_launch()) results = StorageIds(message.launch().results());
  if (message.has_upload()) results.emplace_back(message.upload().storage());
  for (const wire::CopiedArray& array : message.copy().arrays())
    results.emplace_back(array.storage());
  for (const wire::PutArray& array : message.put().arrays()) results.emplace_back(array.storage());
  for (StorageId result : results) {
    if (storages_.CreateUnknown(result)) node.outputs.push_back(result);
  }
  for (StorageId output : node.outputs) storages_.Settle(output, node.failure, actions_);
}

}  // namespace gangway::worker
