// Implementation of describe.h.
#include "gangway/scheduler/core/describe.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/sizes.h"
#include "gangway/wire/put_limits.h"

namespace gangway::scheduler {
namespace {

using DeviceIds = Storages::DeviceIds;

wire::FailureRef Refuse(absl::StatusCode code, std::string_view message,
                        std::string_view advice = "") {
  return wire::Share(wire::MakeFailure(code, message, advice));
}

// Keeps the first of equal elements, in time in proportion to their number.
template <typename T>
void DropRepeats(std::vector<T>& list) {
  if (list.size() < 2) return;
  absl::flat_hash_set<T> seen;
  std::erase_if(list, [&seen](T value) { return !seen.insert(value).second; });
}

// Adds only runs with a shard on this island: an array may combine storages of several islands.
void AddReads(const wire::ArrayRef& ref, const DeviceIds& devices, const Layout& layout,
              const Fleet& fleet, NodeState& node) {
  uint32_t position = 0;
  const auto size = static_cast<uint32_t>(devices.size());
  for (const wire::ShardRun& run : ref.runs()) {
    const uint32_t end = position + std::min(run.count(), size - position);
    bool here = !layout.spans && position < end;
    for (; layout.spans && !here && position < end; ++position)
      here = fleet.Find(DeviceId(devices.Get(static_cast<int>(position)))).has_value();
    position = end;
    if (here) node.reads.emplace_back(run.storage());
  }
}

void AddResult(StorageId storage, uint64_t shard_bytes, Description& description) {
  description.node.writes.push_back(storage);
  description.node.result_bytes = AddSizes(description.node.result_bytes, shard_bytes);
  description.result_bytes.push_back(shard_bytes);
}

// Returns the bytes on each device of which results may take the place.
uint64_t AddConsumed(const wire::Launch& launch, const Storages& storages, LaunchPart& part) {
  uint64_t consumed_bytes = 0;
  for (uint32_t index : launch.donated()) {
    if (index >= static_cast<uint32_t>(launch.arguments_size())) continue;
    bool owned = true;
    uint64_t bytes = 0;
    for (const wire::ShardRun& run : launch.arguments(static_cast<int>(index)).runs()) {
      const StorageId id(run.storage());
      part.consumes.push_back(id);
      part.consumed.push_back({id, run.first(), run.count()});
      if (!storages.Contains(id)) continue;
      owned &= !storages.IsShared(id);
      bytes = storages.ShardBytesOf(id);
    }
    if (owned) consumed_bytes = AddSizes(consumed_bytes, bytes);
  }
  std::ranges::sort(part.consumes);
  part.consumes.erase(std::unique(part.consumes.begin(), part.consumes.end()), part.consumes.end());
  return consumed_bytes;
}

// GS-2: null if the launch fits on its devices alone.
wire::FailureRef CheckBudget(const Executable& executable, const NodeState& node,
                             const Ledger& ledger) {
  uint64_t argument_bytes = 0;
  for (const wire::TensorSpec& parameter : executable.load.parameters())
    argument_bytes = AddSizes(argument_bytes, parameter.shard_bytes());
  const uint64_t all = AddSizes(AddSizes(argument_bytes, node.result_bytes), node.temp_bytes);
  // A sum that is too large to be told stays too large without what donation saves.
  const uint64_t alone = all == UINT64_MAX ? all : all - node.alias_bytes;
  const uint64_t limit = ledger.limit_bytes(node.devices());
  if (alone <= limit) return nullptr;
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("program ", executable.load.name(), " alone needs ", alone,
                   " bytes on each device (arguments ", argument_bytes, ", results ",
                   node.result_bytes, ", temporaries ", node.temp_bytes, ", reused by donation ",
                   node.alias_bytes, "), the budget is ", limit),
      "Shard it over more devices, donate arguments, or raise the budget.");
  wire::SetProgram(node.program, failure);
  return wire::Share(std::move(failure));
}

void DescribeLaunch(const wire::Launch& launch, const IslandState& island,
                    Description& description) {
  NodeState& node = description.node;
  LaunchPart& part = node.part.emplace<LaunchPart>();
  part.executable = ExecutableId(launch.executable());
  const Executable* executable = island.executables.Find(part.executable);
  if (executable == nullptr) {
    description.results = Layouts::Empty();
    for (uint64_t result : launch.results()) AddResult(StorageId(result), 0, description);
    description.failure = Refuse(absl::StatusCode::kNotFound,
                                 absl::StrCat("executable ", part.executable,
                                              " is not loaded on island ", island.config.island),
                                 "It was dropped before this call; compile it again.");
    return;
  }
  const wire::Load& load = executable->load;
  const Layout& layout = *executable->layout;
  node.program = executable->label;
  part.client = executable->client;
  part.alone = launch.alone();
  part.calls_host = load.calls_host();
  part.spans = layout.spans;
  node.workers = layout.workers;
  node.layout = executable->layout;
  for (const wire::ArrayRef& argument : launch.arguments())
    AddReads(argument, load.devices(), layout, island.fleet, node);
  const uint64_t consumed_bytes = AddConsumed(launch, island.storages, part);
  node.temp_bytes = load.memory().temp_bytes();
  description.results = executable->layout;
  for (int i = 0; i < launch.results_size(); ++i) {
    const uint64_t bytes = i < load.results_size() ? load.results(i).shard_bytes() : 0;
    AddResult(StorageId(launch.results(i)), bytes, description);
  }
  node.alias_bytes = std::min({load.memory().alias_bytes(), consumed_bytes, node.result_bytes});
  description.failure = island.executables.FailureOf(part.executable);
  if (!description.failure)
    description.failure = CheckBudget(*executable, node, island.books.ledger());
}

void DescribeUpload(const wire::Upload& upload, const IslandState& island,
                    Description& description) {
  description.node.part.emplace<UploadPart>();
  description.results = island.layouts.Of(upload.spec().devices());
  description.node.workers = description.results->workers;
  description.node.layout = description.results;
  AddResult(StorageId(upload.storage()), upload.spec().shard_bytes(), description);
}

void DescribePut(const wire::Put& put, const IslandState& island, Description& description) {
  PutPart& part = description.node.part.emplace<PutPart>();
  description.results = island.layouts.Of(put.devices());
  description.node.workers = description.results->workers;
  description.node.layout = description.results;
  for (const wire::PutArray& array : put.arrays()) {
    part.cost += wire::PutCost(array.shards());
    AddResult(StorageId(array.storage()), array.tensor().shard_bytes(), description);
  }
}

// Shard i of each result comes from shard i of its source.
void DescribeRoutes(const wire::Copy& copy, const Fleet& fleet, CopyPart& part) {
  const DeviceIds& from = copy.source_devices();
  const DeviceIds& to = copy.devices();
  for (int i = 0; i < std::min(from.size(), to.size()); ++i) {
    const auto source = fleet.Find(DeviceId(from.Get(i)));
    const auto sink = fleet.Find(DeviceId(to.Get(i)));
    part.from_other_island |= sink && !source;
    part.to_other_island |= source && !sink;
    if (!sink) continue;
    const uint32_t receiver = fleet.WorkerOf(*sink);
    if (source && fleet.WorkerOf(*source) == receiver) continue;
    part.receivers.push_back(receiver);
    if (source) part.senders.push_back(fleet.WorkerOf(*source));
  }
  DropRepeats(part.senders);
  DropRepeats(part.receivers);
}

void DescribeCopy(const wire::Copy& copy, const IslandState& island, Description& description) {
  NodeState& node = description.node;
  CopyPart& part = node.part.emplace<CopyPart>();
  const LayoutRef source = island.layouts.Of(copy.source_devices());
  const LayoutRef sink = island.layouts.Of(copy.devices());
  node.workers = source->workers;
  node.workers.insert(node.workers.end(), sink->workers.begin(), sink->workers.end());
  DropRepeats(node.workers);
  node.layout = sink;
  description.results = sink;
  for (const wire::CopiedArray& array : copy.arrays()) {
    AddReads(array.source(), copy.source_devices(), *source, island.fleet, node);
    if (!sink->devices.empty())
      AddResult(StorageId(array.storage()), array.spec().shard_bytes(), description);
  }
  DescribeRoutes(copy, island.fleet, part);
}

void DescribeFetch(const wire::Fetch& fetch, const IslandState& island, Description& description) {
  description.node.part.emplace<FetchPart>();
  const LayoutRef layout = island.layouts.Of(fetch.devices());
  description.node.workers = layout->workers;
  AddReads(fetch.source(), fetch.devices(), *layout, island.fleet, description.node);
}

// What is wrong with a node that is no launch.
wire::FailureRef Check(const NodeState& node, const IslandState& island) {
  if (node.workers.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("node names no device of island ", island.config.island));
  }
  const uint64_t limit = island.books.ledger().limit_bytes(node.devices());
  if (node.result_bytes <= limit) return nullptr;
  return Refuse(absl::StatusCode::kResourceExhausted,  // GS-2: alone exceeds the budget
                absl::StrCat(node.writes.size() == 1 ? "an array needs "
                             : node.put() != nullptr ? "arrays that were put together need "
                                                     : "a copy needs ",
                             node.result_bytes, " bytes on each device, the budget is ", limit),
                "Shard it over more devices, or raise the budget.");
}

}  // namespace

Description Describe(const wire::Node& message, const IslandState& island, Time now) {
  Description description;
  NodeState& node = description.node;
  node.ordinal = Ordinal(message.ordinal());
  node.session = SessionId(message.session());
  node.arrived = now;
  node.dispatch = message.dispatch();
  switch (message.kind_case()) {
    case wire::Node::kLaunch:
      DescribeLaunch(message.launch(), island, description);
      break;
    case wire::Node::kUpload:
      DescribeUpload(message.upload(), island, description);
      break;
    case wire::Node::kPut:
      DescribePut(message.put(), island, description);
      break;
    case wire::Node::kCopy:
      DescribeCopy(message.copy(), island, description);
      break;
    case wire::Node::kFetch:
      DescribeFetch(message.fetch(), island, description);
      break;
    default:
      description.failure = Refuse(absl::StatusCode::kUnimplemented,
                                   "this scheduler received a node of a kind that it does not know",
                                   "Run the same version of Gangway everywhere.");
      return description;
  }
  if (!node.is_launch()) description.failure = Check(node, island);
  DropRepeats(node.reads);
  if (node.is_launch() && node.dispatch == wire::DISPATCH_AFTER_RELEASE)
    node.workers_to_enqueue = static_cast<uint32_t>(node.workers.size());
  node.open_workers = node.workers;
  std::ranges::sort(node.open_workers);
  return description;
}

}  // namespace gangway::scheduler
