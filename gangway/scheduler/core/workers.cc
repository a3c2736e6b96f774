// Workers that start, are lost, and return with a new incarnation.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

std::string Island::WorkerName(uint32_t worker) const {
  return absl::StrCat("island", config_.island, "/worker", worker);
}

wire::Worker Island::DescribeWorker(uint32_t index) const {
  const WorkerState& worker = workers_[index];
  wire::Worker described;
  described.set_island(config_.island);
  described.set_index(index);
  described.set_incarnation(worker.incarnation.number());
  described.set_device_kind(worker.registration.device_kind());
  described.set_platform(worker.registration.platform());
  described.set_platform_version(worker.registration.platform_version());
  *described.mutable_attributes() = worker.registration.attributes();
  *described.mutable_device_attributes() = worker.registration.device_attributes();
  described.set_data_address(worker.registration.data_address());
  for (DeviceId id : config_.workers[index].devices) described.add_devices(id.number());
  return described;
}

// Drops items for a worker that is down: OnWorkerUp() sends it all that it needs.
void Island::SendToWorkers(const std::vector<uint32_t>& workers, wire::IslandItem item,
                           Actions& actions) {
  std::optional<uint32_t> latest;  // gets the item itself, the ones before it copies
  for (uint32_t worker : workers) {
    if (workers_[worker].incarnation == Incarnation()) continue;
    if (latest) Emit(*latest, item, actions);
    latest = worker;
  }
  if (latest) Emit(*latest, std::move(item), actions);
}

void Island::Emit(uint32_t worker, wire::IslandItem item, Actions& actions) {
  workers_[worker].sent_in = step_;
  workers_[worker].sent_at = actions.to_workers.size();
  actions.to_workers.emplace_back(worker, std::move(item));
}

void Island::OnWorkerUp(WorkerUp& event, Time now, Actions& actions) {
  uint32_t index = event.registration.index();
  if (index >= workers_.size()) return;  // the service rejects such a registration
  WorkerState& worker = workers_[index];
  if (worker.incarnation != Incarnation()) {
    WorkerDown down{
        index, worker.incarnation,
        wire::MakeFailure(absl::StatusCode::kUnavailable, "replaced by a newer incarnation")};
    OnWorkerDown(down, actions);
  }
  ++epoch_;
  worker.incarnation = Incarnation(event.registration.incarnation());
  worker.before_latest = std::exchange(worker.latest, worker.incarnation);
  worker.registration = event.registration;
  worker.process_id = event.process_id;
  worker.data.Clear();
  worker.stuck.clear();
  worker.members.clear();
  worker.ends_for.reset();
  wire::IslandItem open;
  open.mutable_open_devices()->set_island_epoch(epoch_);
  open.mutable_open_devices()->set_node_id(index);
  open.mutable_open_devices()->set_num_nodes(static_cast<uint32_t>(workers_.size()));
  for (DeviceId id : config_.workers[index].devices) {
    open.mutable_open_devices()->add_devices(id.number());
    ledger_.SetOwnBudget(device_index_.at(id), event.registration.device_bytes());
  }
  memory_freed_ = true;  // its devices may have more than before
  SendToWorkers({index}, std::move(open), actions);
  for (SessionId session : worker.admitted) {
    wire::IslandItem item;
    item.mutable_admit_session()->set_index(index);
    item.mutable_admit_session()->set_session(session.number());
    SendToWorkers({index}, std::move(item), actions);
  }
  for (const auto& [id, executable] : executables_) {
    const std::vector<uint32_t> workers = WorkersOf(executable.load);
    if (std::ranges::find(workers, index) == workers.end()) continue;
    load_failures_.erase(id);
    SendLoad(executable.load, {index}, actions);
  }
  NameMember(index, actions);
  ResumeUnsent(actions);
  ReportUp(index, actions);
}

wire::Worker Island::MemberOn(uint32_t index) const {
  wire::Worker member = DescribeWorker(index);
  member.set_island_epoch(epoch_);
  member.set_host(workers_[index].registration.host());
  *member.mutable_collectives() = workers_[index].registration.collectives();
  return member;
}

// To those that have members of the same programs, or had them: they may wait for it, or keep its memory.
void Island::NameMember(uint32_t index, Actions& actions) {
  std::set<uint32_t> others = std::exchange(workers_[index].known_to, {});
  for (const auto& [id, executable] : executables_) {
    if (!HasMembers(executable.load)) continue;
    const std::vector<uint32_t> workers = WorkersOf(executable.load);
    if (std::ranges::find(workers, index) == workers.end()) continue;
    others.insert(workers.begin(), workers.end());
  }
  others.erase(index);
  if (others.empty()) return;
  wire::IslandItem item;
  *item.mutable_member() = MemberOn(index);
  if (workers_[index].incarnation != Incarnation()) workers_[index].known_to = others;
  SendToWorkers({others.begin(), others.end()}, std::move(item), actions);
}

void Island::ReportUp(uint32_t index, Actions& actions) const {
  wire::Report report;
  wire::WorkerState* state = report.mutable_worker_state();
  state->set_up(true);
  state->set_process_id(workers_[index].process_id);
  *state->mutable_worker() = DescribeWorker(index);
  for (const WorkerState::Stuck& each : workers_[index].stuck) {
    wire::StuckDevice& stuck = *state->add_stuck();
    stuck.set_device(each.device.number());
    stuck.set_gang(each.gang.number());
  }
  actions.to_controller.push_back(std::move(report));
}

// Reports each device once when it is stuck and once when it resumes.
void Island::OnWorkerBeat(const WorkerBeat& event, Time now, Actions& actions) {
  if (event.worker >= workers_.size()) return;
  WorkerState& worker = workers_[event.worker];
  if (worker.incarnation == Incarnation() || worker.incarnation != event.incarnation) return;
  const auto& ids = config_.workers[event.worker].devices;
  std::vector<WorkerState::Stuck> before = std::exchange(worker.stuck, {});
  bool changed = false;
  for (const wire::StuckDevice& each : event.beat.stuck()) {
    if (each.device() >= ids.size()) continue;
    const auto duration = std::chrono::milliseconds(std::min<uint64_t>(each.for_ms(), 1u << 30));
    WorkerState::Stuck stuck{ids[each.device()], Ordinal(each.gang()), now - duration};
    const size_t known = std::erase_if(before, [&stuck](const WorkerState::Stuck& old) {
      return old.device == stuck.device && old.gang == stuck.gang;
    });
    if (known == 0) NoticeStuck(event.worker, stuck, actions);
    changed |= known == 0;
    worker.stuck.push_back(stuck);
  }
  for (const WorkerState::Stuck& over : before) {
    actions.notices.push_back(absl::StrCat("device ", over.device, " of ", WorkerName(event.worker),
                                           " resumed after gang ", over.gang));
  }
  if (changed || !before.empty()) ReportUp(event.worker, actions);
  OnMembers(event, now, actions);
  OnHeld(event, now, actions);
}

void Island::NoticeStuck(uint32_t worker, const WorkerState::Stuck& stuck, Actions& actions) const {
  auto node = nodes_.find(stuck.gang);
  const bool known = node != nodes_.end();
  actions.notices.push_back(absl::StrCat(
      "device ", stuck.device, " of ", WorkerName(worker), " is stuck in gang ", stuck.gang,
      known && node->second.program != nullptr
          ? absl::StrCat(" (", wire::ToText(*node->second.program), ")")
          : "",
      known ? absl::StrCat(" of session ", node->second.session) : "",
      ": the device runtime has not returned from it, although the worker's heartbeats arrive. See "
      "`gangway why gang ",
      stuck.gang, "`; if it does not resume, kill the worker (pid ", workers_[worker].process_id,
      "): it restarts without its arrays"));
}

void Island::OnWorkerDown(WorkerDown& event, Actions& actions) {
  if (event.worker >= workers_.size() || workers_[event.worker].incarnation != event.incarnation)
    return;
  ++epoch_;
  workers_[event.worker].incarnation = {};
  workers_[event.worker].stuck.clear();
  workers_[event.worker].members.clear();
  for (WorkerState& other : workers_) other.known_to.erase(event.worker);
  const std::vector<const NodeState*> launches =
      event.crashed ? LaunchesOn(event.worker) : std::vector<const NodeState*>();
  wire::Failure lost = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat("the worker that held this array is gone: ", event.why.message(),
                   LaunchesText(launches)),
      "Make the array again, from a checkpoint if need be; the worker is restarted by its "
      "supervisor.");
  lost.set_worker(WorkerName(event.worker));
  lost.set_incarnation(event.incarnation.number());
  wire::Clip(lost);
  last_loss_ = wire::Share(lost);
  wire::Report report;
  wire::WorkerState* state = report.mutable_worker_state();
  state->set_up(false);
  *state->mutable_failure() = lost;
  state->mutable_worker()->set_island(config_.island);
  state->mutable_worker()->set_index(event.worker);
  state->mutable_worker()->set_incarnation(event.incarnation.number());
  for (DeviceId id : config_.workers[event.worker].devices)
    state->mutable_worker()->add_devices(id.number());
  for (const NodeState* launch : launches) state->add_gangs(launch->ordinal.number());
  if (const auto gang = workers_[event.worker].ends_for) state->set_held_by(gang->number());
  actions.to_controller.push_back(std::move(report));  // before the node ends that it causes
  EndLost(event.worker, lost, actions);
  NameMember(event.worker, actions);  // after they know why their gangs have failed
  LoseShards(event.worker,
             actions);  // after the node ends, which settle the memory that donation saved
  unsent_input_failed_ |= !unsent_.empty();
}

// What the worker held is lost, and no more: shards of the same storages on other workers stay. A storage whose
// producer has not ended fails as a whole, as its producer does.
void Island::LoseShards(uint32_t worker, Actions& actions) {
  std::set<StorageId> changed;
  for (auto& [id, storage] : storages_) {
    auto is_there = [&](IslandDevice device) { return StateOf(device).worker == worker; };
    if (std::none_of(storage.devices.begin(), storage.devices.end(), is_there)) continue;
    auto producer = nodes_.find(storage.producer);
    if (producer != nodes_.end() && producer->second.unsent) continue;
    auto is_lost = [&](IslandDevice device) {
      return storage.lost.contains(StateOf(device).worker);
    };
    storage.lost.emplace(worker, last_loss_);
    const bool all = std::all_of(storage.devices.begin(), storage.devices.end(), is_lost);
    if (!storage.failure && (all || producer != nodes_.end())) storage.failure = last_loss_;
    changed.insert(id);
  }
  shards_lost_ |= !changed.empty();
  for (StorageId id : changed) Reclaim(id, actions);
}

// Why the node cannot run: a shard that it reads here is gone. Nodes that are with their workers need no such look,
// since they fail with the worker.
wire::FailureRef Island::LostShard(const wire::Node& message) const {
  if (!shards_lost_) return nullptr;
  if (message.has_copy())
    return LostShard(message.copy().source(), message.copy().source_spec().devices());
  if (message.has_fetch()) return LostShard(message.fetch().source(), message.fetch().devices());
  auto executable = executables_.find(ExecutableId(message.launch().executable()));
  if (executable == executables_.end()) return nullptr;
  for (const wire::ArrayRef& argument : message.launch().arguments()) {
    if (auto failure = LostShard(argument, executable->second.load.devices())) return failure;
  }
  return nullptr;
}

wire::FailureRef Island::LostShard(const wire::ArrayRef& ref,
                                   const google::protobuf::RepeatedField<uint32_t>& devices) const {
  int position = 0;
  for (const wire::ShardRun& run : ref.runs()) {
    auto storage = storages_.find(StorageId(run.storage()));
    const bool whole = storage == storages_.end() || storage->second.lost.empty();
    for (uint32_t i = 0; i < run.count() && position < devices.size(); ++i, ++position) {
      if (whole) continue;
      auto device = device_index_.find(DeviceId(devices.Get(position)));
      if (device == device_index_.end()) continue;
      auto lost = storage->second.lost.find(StateOf(device->second).worker);
      if (lost != storage->second.lost.end()) return lost->second;
    }
  }
  return nullptr;
}

// Fails the nodes that the worker took part in. A node that other workers still run ends when they
// report Done: until then they use its storages (OB-1).
void Island::EndLost(uint32_t worker, const wire::Failure& lost, Actions& actions) {
  std::vector<Ordinal> failed;
  for (auto& [ordinal, node] : nodes_) {
    bool takes_part =
        std::find(node.workers.begin(), node.workers.end(), worker) != node.workers.end();
    if (takes_part && !node.unsent) failed.push_back(ordinal);
  }
  for (Ordinal ordinal : failed) {
    auto it = nodes_.find(ordinal);
    if (it == nodes_.end()) continue;
    NodeState& node = it->second;
    wire::Failure failure = lost;
    failure.set_gang(ordinal.number());
    wire::SetProgram(node.program, failure);
    if (!node.released) {
      FailUnreleased(ordinal, wire::Share(std::move(failure)), actions);
      continue;
    }
    if (!node.failure) node.failure = wire::Share(std::move(failure));
    CloseFor(worker, node);
    if (node.open_workers.empty()) {
      End(ordinal, actions);
    } else if (MayWaitForOthers(node)) {
      CancelOpenWorkers(node, actions);
    }
  }
}

// A node that reads results of an unsent node must wait too: its workers would not know them. So must one that consumes
// what an earlier unsent node reads: its workers would hear of the donation first.
bool Island::MustWaitForWorkers(const NodeState& node) const {
  auto is_down = [this](uint32_t worker) { return workers_[worker].incarnation == Incarnation(); };
  auto is_unsent = [this](StorageId id) {
    auto storage = storages_.find(id);
    auto producer =
        storage == storages_.end() ? nodes_.end() : nodes_.find(storage->second.producer);
    return producer != nodes_.end() && producer->second.unsent;
  };
  auto is_read_before = [this, &node](StorageId id) {
    auto readers = unsent_readers_.find(id);
    return readers != unsent_readers_.end() && *readers->second.begin() < node.ordinal;
  };
  return std::any_of(node.workers.begin(), node.workers.end(), is_down) ||
         std::any_of(node.reads.begin(), node.reads.end(), is_unsent) ||
         std::any_of(node.consumes.begin(), node.consumes.end(), is_read_before);
}

void Island::HoldBack(NodeState& node) {
  ++node.blockers;
  unsent_.insert(node.ordinal);
  for (StorageId id : node.reads) unsent_readers_[id].insert(node.ordinal);
}

void Island::EndHolding(const NodeState& node) {
  if (unsent_.erase(node.ordinal) == 0) return;
  for (StorageId id : node.reads) {
    auto readers = unsent_readers_.find(id);
    readers->second.erase(node.ordinal);
    if (readers->second.empty()) unsent_readers_.erase(readers);
  }
}

// In ordinal order, so that a producer is sent, or fails, before its readers.
void Island::ResumeUnsent(Actions& actions) {
  std::vector<Ordinal> unsent(unsent_.begin(), unsent_.end());
  for (Ordinal ordinal : unsent) {
    NodeState& node = nodes_.at(ordinal);
    wire::FailureRef failure = InputFailure(node);
    if (!failure) failure = LostShard(node.message);
    if (!failure) failure = LostBytes(node.message);
    if (failure) {
      FailUnreleased(ordinal, std::move(failure), actions);
      continue;
    }
    if (MustWaitForWorkers(node)) continue;
    EndHolding(node);
    node.unsent = false;
    SendNode(node, std::move(node.message), actions);
    Unblock(ordinal);
  }
  unsent_input_failed_ = false;
}

void Island::OnWorkerDeadlines(Time now, Actions& actions) {
  for (auto next = unsent_.begin(); next != unsent_.end();) {
    NodeState& node = nodes_.at(*next++);  // only its own entry goes when it fails
    if (now < node.arrived + config_.worker_wait_max) return;
    auto down = std::find_if(node.workers.begin(), node.workers.end(), [this](uint32_t w) {
      return workers_[w].incarnation == Incarnation();
    });
    if (down == node.workers.end()) continue;  // it waits for a node that fails now: ResumeUnsent
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDeadlineExceeded,
                          absl::StrCat("a worker that this needs has been down for ",
                                       config_.worker_wait_max.count(), " ms"),
                          "See `gangway status`; start the worker.");
    failure.set_worker(WorkerName(*down));
    wire::SetProgram(node.program, failure);
    failure.set_gang(node.ordinal.number());
    FailUnreleased(node.ordinal, wire::Share(std::move(failure)), actions);
  }
}

}  // namespace gangway::scheduler
