// Items from the controller: describes nodes, links them to their producers, and passes them on to
// their workers.
#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

constexpr std::chrono::seconds kLoadAgainAfter{1};  // an executable that failed to load

// Keeps the first of equal elements, in time in proportion to their number.
template <typename T>
void DropRepeats(std::vector<T>& list) {
  if (list.size() < 2) return;
  absl::flat_hash_set<T> seen;
  std::erase_if(list, [&seen](T value) { return !seen.insert(value).second; });
}

void SortOnce(std::vector<IslandDevice>& devices) {
  if (!std::is_sorted(devices.begin(), devices.end())) std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
}

wire::FailureRef Refuse(absl::StatusCode code, std::string_view message,
                        std::string_view advice = "") {
  return wire::Share(wire::MakeFailure(code, message, advice));
}

}  // namespace

void Island::OnItem(wire::IslandItem& item, Time now, Actions& actions) {
  switch (item.item_case()) {
    case wire::IslandItem::kNode:
      return OnNode(*item.mutable_node(), now, actions);
    case wire::IslandItem::kFree:
      return OnFree(item.free(), actions);
    case wire::IslandItem::kLoad:
      return OnLoad(item.load(), actions);
    case wire::IslandItem::kUnload:
      return OnUnload(item.unload(), actions);
    case wire::IslandItem::kEndSession:
      return OnEndSession(SessionId(item.end_session().session()), now, actions);
    case wire::IslandItem::kReleased:
      return OnReleasedElsewhere(*item.mutable_released());
    case wire::IslandItem::kAdmit:
      return OnTurn(item.admit());
    case wire::IslandItem::kRelease:
      return OnReleaseOfSpanning(item.release(), now, actions);
    case wire::IslandItem::kCancel:
      return OnCancel(item.cancel(), actions);
    case wire::IslandItem::kLeave:
      if (item.leave().index() < workers_.size() &&
          workers_[item.leave().index()].incarnation == Incarnation(item.leave().incarnation())) {
        SendToWorkers({item.leave().index()}, item, actions);
      }
      return;
    case wire::IslandItem::kAdmitSession:
      return OnAdmitSession(item.admit_session(), actions);
    case wire::IslandItem::kReplaceWorker:
      return OnReplaceWorker(*item.mutable_replace_worker(), actions);
    case wire::IslandItem::kProbe:
      return OnProbe(item.probe(), actions);
    default:
      return;  // scheduler -> worker items, and those of a newer controller
  }
}

void Island::OnNode(wire::Node& message, Time now, Actions& actions) {
  NodeState node;
  node.ordinal = Ordinal(message.ordinal());
  node.session = SessionId(message.session());
  node.arrived = now;
  if (nodes_.count(node.ordinal) != 0) return;
  latest_ = node.ordinal;
  if (message.has_launch()) LoadAgain(ExecutableId(message.launch().executable()), now, actions);
  wire::FailureRef failure = Describe(message, node);
  wire::FailureRef lost_input = Link(node);
  if (!failure) failure = lost_input;
  if (!failure) failure = InputFailure(node);
  if (!failure) failure = LostShard(message);
  if (!failure) failure = LostBytes(message);
  node.open_workers = node.workers;
  std::sort(node.open_workers.begin(), node.open_workers.end());
  NodeState& kept = nodes_.emplace(node.ordinal, std::move(node)).first->second;
  kept.unsent = MustWaitForWorkers(kept);
  if (failure) {
    kept.unsent = true;
    kept.message = std::move(message);
    return FailUnreleased(kept.ordinal, std::move(failure), actions);
  }
  if (kept.unsent) {
    HoldBack(kept);
    kept.message = std::move(message);
  } else {
    SendNode(kept, std::move(message), actions);
  }
  if (kept.blockers == 0) MakeReady(kept);
  NoteExchange(kept);
}

void Island::SendNode(const NodeState& node, wire::Node message, Actions& actions) {
  wire::IslandItem item;
  *item.mutable_node() = std::move(message);
  if (item.node().has_launch()) item.mutable_node()->mutable_launch()->set_island_epoch(epoch_);
  SendToWorkers(node.workers, std::move(item), actions);
}

// DATA_LOSS if an upload's bytes went to a worker incarnation that is gone: its successor would
// wait for them forever.
wire::FailureRef Island::LostBytes(const wire::Node& message) const {
  if (!message.has_upload()) return nullptr;
  for (const wire::Destination& to : message.upload().destinations()) {
    if (to.island() != config_.island || to.index() >= workers_.size()) continue;
    const WorkerState& worker = workers_[to.index()];
    bool up = worker.incarnation != Incarnation();
    // The next incarnation of a worker that is down may still get the bytes: the upload waits.
    const Incarnation expected = !to.next() ? worker.incarnation
                                 : up       ? worker.before_latest
                                            : worker.latest;
    if ((up || to.next()) && Incarnation(to.incarnation()) == expected) continue;
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDataLoss,
                          "the bytes of this array were sent to a worker process that is gone",
                          "Make the array again; the worker is restarted by its supervisor.");
    failure.set_worker(WorkerName(to.index()));
    if (!to.next()) failure.set_incarnation(to.incarnation());
    failure.set_gang(message.ordinal());
    return wire::Share(std::move(failure));
  }
  return nullptr;
}

wire::FailureRef Island::Describe(const wire::Node& message, NodeState& node) {
  wire::FailureRef failure = DescribeKind(message, node);
  DropRepeats(node.workers);
  SortOnce(node.devices);
  DropRepeats(node.reads);
  DropRepeats(node.senders);
  DropRepeats(node.receivers);
  return failure;
}

wire::FailureRef Island::DescribeKind(const wire::Node& message, NodeState& node) {
  switch (message.kind_case()) {
    case wire::Node::kLaunch:
      return DescribeLaunch(message.launch(), node);
    case wire::Node::kUpload:
      DescribeUpload(message.upload(), node);
      break;
    case wire::Node::kCopy:
      DescribeCopy(message.copy(), node);
      break;
    case wire::Node::kFetch:
      DescribeFetch(message.fetch(), node);
      break;
    default:
      return Refuse(absl::StatusCode::kUnimplemented,
                    "this scheduler received a node of a kind that it does not know",
                    "Run the same version of Gangway everywhere.");
  }
  if (node.workers.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("node names no device of island ", config_.island));
  }
  const uint64_t limit = ledger_.limit_bytes(node.devices);
  if (node.result_bytes > limit) {  // GS-2: alone exceeds the budget
    return Refuse(absl::StatusCode::kResourceExhausted,
                  absl::StrCat("an array needs ", node.result_bytes,
                               " bytes on each device, the budget is ", limit),
                  "Shard it over more devices, or raise the budget.");
  }
  return nullptr;
}

wire::FailureRef Island::DescribeLaunch(const wire::Launch& launch, NodeState& node) {
  node.kind = Kind::kLaunch;
  node.executable = ExecutableId(launch.executable());
  auto found = executables_.find(node.executable);
  if (found == executables_.end()) {
    for (uint64_t result : launch.results()) AddResult(StorageId(result), {}, 0, node);
    return Refuse(
        absl::StatusCode::kNotFound,
        absl::StrCat("executable ", node.executable, " is not loaded on island ", config_.island),
        "It was dropped before this call; compile it again.");
  }
  const wire::Load& load = found->second.load;
  node.program = found->second.label;
  node.client = found->second.client;
  node.alone = launch.alone();
  node.calls_host = load.calls_host();
  AddPlaces(load.devices(), node, /*charge=*/true);
  node.spans = std::any_of(load.devices().begin(), load.devices().end(),
                           [this](uint32_t id) { return !device_index_.contains(DeviceId(id)); });
  for (const wire::ArrayRef& argument : launch.arguments())
    AddReads(argument, load.devices(), node);
  uint64_t consumed_bytes = 0;  // on each device, of which results may take the place
  for (uint32_t index : launch.donated()) {
    if (index >= static_cast<uint32_t>(launch.arguments_size())) continue;
    bool owned = true;
    uint64_t bytes = 0;
    for (const wire::ShardRun& run : launch.arguments(index).runs()) {
      node.consumes.emplace_back(run.storage());
      node.consumed.push_back({StorageId(run.storage()), run.first(), run.count()});
      auto storage = storages_.find(StorageId(run.storage()));
      if (storage == storages_.end()) continue;
      owned &= !storage->second.shared;
      bytes = storage->second.shard_bytes;
    }
    if (owned) consumed_bytes = AddSizes(consumed_bytes, bytes);
  }
  std::sort(node.consumes.begin(), node.consumes.end());
  node.consumes.erase(std::unique(node.consumes.begin(), node.consumes.end()), node.consumes.end());
  for (const wire::TensorSpec& parameter : load.parameters())
    node.argument_bytes = AddSizes(node.argument_bytes, parameter.shard_bytes());
  node.temp_bytes = load.memory().temp_bytes();
  for (int i = 0; i < launch.results_size(); ++i) {
    uint64_t bytes = i < load.results_size() ? load.results(i).shard_bytes() : 0;
    AddResult(StorageId(launch.results(i)), load.devices(), bytes, node);
  }
  node.alias_bytes = std::min({load.memory().alias_bytes(), consumed_bytes, node.result_bytes});
  auto failed = load_failures_.find(node.executable);
  if (failed != load_failures_.end()) return failed->second.failure;
  const uint64_t all = AddSizes(AddSizes(node.argument_bytes, node.result_bytes), node.temp_bytes);
  // A sum that is too large to be told stays too large without what donation saves.
  const uint64_t alone = all == UINT64_MAX ? all : all - node.alias_bytes;
  const uint64_t limit = ledger_.limit_bytes(node.devices);
  if (alone > limit) {
    wire::Failure failure = wire::MakeFailure(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("program ", load.name(), " alone needs ", alone,
                     " bytes on each device (arguments ", node.argument_bytes, ", results ",
                     node.result_bytes, ", temporaries ", node.temp_bytes, ", reused by donation ",
                     node.alias_bytes, "), the budget is ", limit),
        "Shard it over more devices, donate arguments, or raise the budget.");
    wire::SetProgram(node.program, failure);
    return wire::Share(std::move(failure));
  }
  return nullptr;
}

void Island::DescribeUpload(const wire::Upload& upload, NodeState& node) {
  node.kind = Kind::kUpload;
  AddPlaces(upload.spec().devices(), node, true);
  AddResult(StorageId(upload.storage()), upload.spec().devices(), upload.spec().shard_bytes(),
            node);
}

void Island::DescribeCopy(const wire::Copy& copy, NodeState& node) {
  node.kind = Kind::kCopy;
  AddPlaces(copy.source_spec().devices(), node, false);
  bool has_source = !node.workers.empty();
  AddPlaces(copy.spec().devices(), node, true);
  bool has_sink = !node.devices.empty();
  if (has_source) AddReads(copy.source(), copy.source_spec().devices(), node);
  if (has_sink)
    AddResult(StorageId(copy.storage()), copy.spec().devices(), copy.spec().shard_bytes(), node);
  NoteShared(copy, node);
  const auto& from = copy.source_spec().devices();
  const auto& to = copy.spec().devices();
  for (int i = 0; i < std::min(from.size(), to.size());
       ++i) {  // shard i of the result comes from shard i of the source
    auto source = device_index_.find(DeviceId(from.Get(i)));
    auto sink = device_index_.find(DeviceId(to.Get(i)));
    bool from_here = source != device_index_.end();
    bool to_here = sink != device_index_.end();
    node.from_other_island |= to_here && !from_here;
    node.to_other_island |= from_here && !to_here;
    if (!to_here) continue;
    uint32_t receiver = StateOf(sink->second).worker;
    if (from_here && StateOf(source->second).worker == receiver) continue;
    node.receivers.push_back(receiver);
    if (from_here) node.senders.push_back(StateOf(source->second).worker);
  }
}

// A worker never donates a buffer that it has copied, and a shard that stays on its device is the same buffer.
void Island::NoteShared(const wire::Copy& copy, const NodeState& node) {
  for (StorageId id : node.reads) {
    if (auto it = storages_.find(id); it != storages_.end()) it->second.shared = true;
  }
  const auto& from = copy.source_spec().devices();
  const auto& to = copy.spec().devices();
  auto result = storages_.find(StorageId(copy.storage()));
  for (int i = 0; result != storages_.end() && i < std::min(from.size(), to.size()); ++i)
    result->second.shared |= from.Get(i) == to.Get(i);
}

void Island::DescribeFetch(const wire::Fetch& fetch, NodeState& node) {
  node.kind = Kind::kFetch;
  AddPlaces(fetch.devices(), node, false);
  AddReads(fetch.source(), fetch.devices(), node);
}

// Adds only runs with a shard on this island: an array may combine storages of several islands.
void Island::AddReads(const wire::ArrayRef& ref,
                      const google::protobuf::RepeatedField<uint32_t>& devices, NodeState& node) {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    bool here = false;
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      here |= device_index_.contains(DeviceId(devices.Get(position)));
    }
    if (here) node.reads.emplace_back(run.storage());
  }
}

void Island::AddPlaces(const google::protobuf::RepeatedField<uint32_t>& devices, NodeState& node,
                       bool charge) {
  for (uint32_t id : devices) {
    auto it = device_index_.find(DeviceId(id));
    if (it == device_index_.end()) continue;
    node.workers.push_back(StateOf(it->second).worker);
    if (charge) node.devices.push_back(it->second);
  }
}

void Island::AddResult(StorageId storage, const google::protobuf::RepeatedField<uint32_t>& devices,
                       uint64_t shard_bytes, NodeState& node) {
  node.writes.push_back(storage);
  node.result_bytes = AddSizes(node.result_bytes, shard_bytes);
  StorageState& state = storages_[storage];
  state.producer = node.ordinal;
  state.session = node.session;
  state.shard_bytes = shard_bytes;
  absl::flat_hash_set<uint32_t> seen;
  for (uint32_t shard = 0; shard < static_cast<uint32_t>(devices.size()); ++shard) {
    const uint32_t id = devices.Get(static_cast<int>(shard));
    auto it = device_index_.find(DeviceId(id));
    if (it == device_index_.end() || (devices.size() > 1 && !seen.insert(id).second)) continue;
    if (state.shards.empty() && shard != state.devices.size()) {
      state.shards.resize(state.devices.size());
      std::iota(state.shards.begin(), state.shards.end(), 0u);
      state.shards.push_back(shard);
    } else if (!state.shards.empty()) {
      state.shards.push_back(shard);
    }
    state.devices.push_back(it->second);
  }
}

// Counts the node's blockers. Every storage that it reads or writes gets one use, which End()
// returns.
wire::FailureRef Island::Link(NodeState& node) {
  wire::FailureRef failure;
  for (StorageId id : node.writes) ++storages_[id].uses;
  std::vector<StorageId> known;
  for (StorageId id : node.reads) {
    auto it = storages_.find(id);
    if (it == storages_.end()) {
      failure =
          last_loss_
              ? last_loss_
              : Refuse(absl::StatusCode::kDataLoss,
                       absl::StrCat("input storage ", id, " is not on island ", config_.island));
      continue;
    }
    known.push_back(id);
    StorageState& storage = it->second;
    ++storage.uses;
    auto producer = nodes_.find(storage.producer);
    if (producer != nodes_.end() &&
        (!producer->second.released || producer->second.kind == Kind::kUpload)) {
      ++node.blockers;
      producer->second.waiters.push_back(node.ordinal);
    }
    if (storage.unreleased_readers > 0 &&
        std::binary_search(node.consumes.begin(), node.consumes.end(), id)) {
      ++node.blockers;
      storage.consumers.push_back({node.ordinal, storage.unreleased_readers});
    }
    ++storage.unreleased_readers;
  }
  node.reads = std::move(known);
  if (node.from_other_island) ++node.blockers;
  return failure;
}

void Island::OnLoad(const wire::Load& load, Actions& actions) {
  const ExecutableId id(load.executable());
  executables_[id] = {load, wire::LabelOf(load.name(), load.source()),
                      std::make_shared<const std::string>(load.client())};
  load_failures_.erase(id);
  SendLoad(load, WorkersOf(load), actions);
}

std::vector<uint32_t> Island::WorkersOf(const wire::Load& load) const {
  std::vector<uint32_t> workers;
  for (uint32_t id : load.devices()) {
    auto it = device_index_.find(DeviceId(id));
    if (it != device_index_.end()) workers.push_back(StateOf(it->second).worker);
  }
  DropRepeats(workers);
  return workers;
}

// With the members of a program whose collectives are Gangway's own.
void Island::SendLoad(const wire::Load& load, const std::vector<uint32_t>& workers,
                      Actions& actions) {
  wire::IslandItem item;
  *item.mutable_load() = load;
  if (HasMembers(load)) {
    item.mutable_load()->set_island_epoch(epoch_);
    for (uint32_t member : WorkersOf(load)) {
      *item.mutable_load()->add_members() = MemberOn(member);
      workers_[member].known_to.insert(workers.begin(), workers.end());
    }
  }
  SendToWorkers(workers, std::move(item), actions);
}

// A load may have failed for want of memory or descriptors, which the next use may find. The Load
// is ahead of that use in the worker's stream.
void Island::LoadAgain(ExecutableId executable, Time now, Actions& actions) {
  auto failed = load_failures_.find(executable);
  if (failed == load_failures_.end() || now - failed->second.at < kLoadAgainAfter) return;
  const auto code = static_cast<absl::StatusCode>(failed->second.failure->code());
  if (code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kInvalidArgument)
    return;  // of the executable itself
  SendLoad(executables_.at(executable).load,
           {failed->second.workers.begin(), failed->second.workers.end()}, actions);
  load_failures_.erase(failed);
}

void Island::OnUnload(const wire::Unload& unload, Actions& actions) {
  for (uint64_t executable : unload.executables()) unloading_.emplace(executable);
}

// Keeps an executable while an unsent launch needs it; sent launches are ahead of the Unload in the
// workers' streams.
void Island::Unload(Actions& actions) {
  std::set<ExecutableId> needed;
  for (Ordinal ordinal : unsent_) needed.insert(nodes_.at(ordinal).executable);
  wire::IslandItem item;
  std::erase_if(unloading_, [&](ExecutableId executable) {
    if (needed.count(executable) != 0) return false;
    executables_.erase(executable);
    load_failures_.erase(executable);
    item.mutable_unload()->add_executables(executable.number());
    actions.unloaded.push_back(executable);
    return true;
  });
  if (!item.has_unload()) return;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker)
    SendToWorkers({worker}, item, actions);
}

void Island::OnFree(const wire::Free& free, Actions& actions) {
  for (uint64_t number : free.storages()) {
    const StorageId id(number);
    auto it = storages_.find(id);
    if (it == storages_.end()) continue;
    it->second.freed = true;
    Reclaim(id, actions);
  }
  for (const wire::ShardRun& run : free.shards())
    OnFreeShards({StorageId(run.storage()), run.first(), run.count()}, actions);
}

void Island::OnFreeShards(const Shards& shards, Actions& actions) {
  auto it = storages_.find(shards.storage);
  if (it == storages_.end()) return;
  StorageState& storage = it->second;
  if (storage.uses == 0) return ReclaimShards(shards, actions);
  auto& leaving = storage.leaving;
  if (leaving.empty() || leaving.back().last != latest_ || leaving.back().uses_left != storage.uses)
    leaving.push_back({latest_, storage.uses, {}});
  leaving.back().shards.push_back(shards);
}

void Island::OnEndSession(SessionId session, Time now, Actions& actions) {
  std::vector<Ordinal> unreleased;
  for (auto& [ordinal, node] : nodes_) {
    if (node.session == session && !node.released) unreleased.push_back(ordinal);
  }
  // A client may still see this, on a data stream, if only the controller knows that their link was reset.
  const wire::FailureRef ended =
      Refuse(absl::StatusCode::kUnavailable,
             absl::StrCat("session ", session, " has ended: the controller lost its client"),
             "Connect again.");
  for (Ordinal ordinal : unreleased) FailUnreleased(ordinal, ended, actions);
  holds_.erase(session);
  for (auto& [ordinal, node] : nodes_) {
    if (node.session == session && node.kind == Kind::kLaunch && node.released)
      AddOrphan(ordinal, now);
    // Members of a gang may wait for one that never comes, or for a copy, and others' gangs behind them.
    const bool may_hold_others = node.kind == Kind::kLaunch || node.kind == Kind::kCopy;
    if (node.session != session || !may_hold_others || node.failure) continue;
    if (!node.released || !MayWaitForOthers(node)) continue;
    node.failure = ended;
    CancelOpenWorkers(node, actions);
  }
  wire::IslandItem item;
  item.mutable_end_session()->set_session(session.number());
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    workers_[worker].admitted.erase(session);
    SendToWorkers({worker}, item, actions);
  }
}

void Island::OnAdmitSession(const wire::AdmitSession& admit, Actions& actions) {
  if (admit.index() >= workers_.size()) return;
  workers_[admit.index()].admitted.insert(SessionId(admit.session()));
  wire::IslandItem item;
  *item.mutable_admit_session() = admit;
  SendToWorkers({admit.index()}, std::move(item), actions);
}

// What follows waits for the next process, as for a worker that is down.
void Island::OnReplaceWorker(wire::ReplaceWorker& replace, Actions& actions) {
  if (replace.index() >= workers_.size()) return;
  const Incarnation incarnation = workers_[replace.index()].incarnation;
  if (incarnation == Incarnation()) return;
  WorkerDown down{.worker = replace.index(),
                  .incarnation = incarnation,
                  .why = std::move(*replace.mutable_why())};
  OnWorkerDown(down, actions);
  actions.replaced.push_back(std::move(down));
}

void Island::OnReleasedElsewhere(wire::Released& released) {
  for (uint64_t number : released.ordinals()) {
    const Ordinal ordinal(number);
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end() || !it->second.from_other_island) continue;  // it has failed here
    it->second.from_other_island = false;
    it->second.far_senders.assign(released.sources().begin(), released.sources().end());
    Unblock(ordinal);
  }
}

void Island::OnTurn(const wire::Ordinals& turn) {
  for (uint64_t number : turn.ordinals()) {
    const Ordinal ordinal(number);
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end() || !it->second.offered) continue;  // it has failed here
    it->second.has_turn = true;
    turns_.insert(ordinal);
  }
}

void Island::OnReleaseOfSpanning(const wire::Release& release, Time now, Actions& actions) {
  for (uint64_t number : release.ordinals()) {
    const Ordinal ordinal(number);
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end() || !it->second.admitted || it->second.released) continue;
    it->second.released_at = now;
    Release(it->second, actions);
  }
}

void Island::OnCancel(const wire::Cancel& cancel, Actions& actions) {
  const wire::FailureRef failure = wire::Share(cancel.failure());
  for (uint64_t number : cancel.ordinals()) {
    const Ordinal ordinal(number);
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end()) continue;
    if (!it->second.released) {
      FailUnreleased(ordinal, failure, actions);
    } else if (MayWaitForOthers(it->second)) {
      wire::IslandItem item;
      item.mutable_cancel()->add_ordinals(ordinal.number());
      *item.mutable_cancel()->mutable_failure() = cancel.failure();
      SendToWorkers(it->second.open_workers, std::move(item), actions);
    }
  }
}

void Island::OnProbe(uint64_t probe, Actions& actions) {
  wire::Report report;
  wire::Usage* usage = report.mutable_usage();
  usage->set_probe(probe);
  usage->set_nodes(nodes_.size());
  usage->set_storages(storages_.size());
  for (const WorkerState& worker : workers_) *usage->add_workers() = worker.data;
  usage->mutable_worker_nodes()->Resize(static_cast<int>(workers_.size()), 0);
  for (const auto& [ordinal, node] : nodes_) {
    for (uint32_t worker : node.open_workers)
      ++(*usage->mutable_worker_nodes())[static_cast<int>(worker)];
  }
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    wire::DeviceUsage* device = usage->add_devices();
    device->set_device(devices_[i].id.number());
    device->set_bytes(ledger_.used_bytes(IslandDevice(i)));
    device->set_budget_bytes(ledger_.budget_bytes(IslandDevice(i)));
    device->set_peak_bytes(ledger_.peak_bytes(IslandDevice(i)));
    device->set_launches(devices_[i].slots_taken);
  }
  actions.to_controller.push_back(std::move(report));
}

}  // namespace gangway::scheduler
