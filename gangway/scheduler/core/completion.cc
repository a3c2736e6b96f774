// Node ends, failures, and storages that are no longer needed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::OnReport(uint32_t worker, wire::Report& report, Time now, Actions& actions) {
  only_parts_ended_ &= report.has_done();
  switch (report.report_case()) {
    case wire::Report::kDone:
      return OnWorkerDone(worker, *report.mutable_done(), actions);
    case wire::Report::kFailing:
      return OnWorkerFailing(worker, *report.mutable_failing(), actions);
    case wire::Report::kGangWaits:
      return OnGangWaits(worker, *report.mutable_gang_waits(), actions);
    case wire::Report::kWaitHeld:
      return OnWaitHeld(worker, report.wait_held(), actions);
    case wire::Report::kStaging:
      return OnStaging(report.staging(), now);
    case wire::Report::kUsage:
      workers_[worker].data = report.usage().data();
      return;
    case wire::Report::kLeaving: {
      wire::Report leaving;
      leaving.mutable_leaving()->set_index(worker);
      leaving.mutable_leaving()->set_incarnation(workers_[worker].incarnation.number());
      actions.to_controller.push_back(std::move(leaving));
      return;
    }
    case wire::Report::kBrokenBooks:
      actions.notices.push_back(report.broken_books().failure().message());
      actions.to_controller.push_back(std::move(report));
      return;
    case wire::Report::kLoaded:
      if (ExecutableId id(report.loaded().executable());
          report.loaded().has_failure() && executables_.count(id) != 0) {
        wire::Clip(*report.mutable_loaded()->mutable_failure());
        LoadFailure& failed = load_failures_[id];
        failed.failure = wire::Share(report.loaded().failure());
        failed.workers.insert(worker);
        failed.at = now;
      }
      return;
    default:
      return;
  }
}

void Island::OnWorkerDone(uint32_t worker, wire::Done& done, Actions& actions) {
  auto it = nodes_.find(Ordinal(done.ordinal()));
  if (it == nodes_.end()) return;  // failed here already
  NodeState& node = it->second;
  only_parts_ended_ &= node.released && !done.has_failure() && node.open_workers.size() > 1;
  if (done.has_failure()) wire::Clip(*done.mutable_failure());
  if (!node.released) {  // the worker could not even prepare it
    wire::Failure failure =
        done.has_failure()
            ? done.failure()
            : wire::MakeFailure(absl::StatusCode::kInternal,
                                "a worker reported the end of work that was never released");
    return FailUnreleased(node.ordinal, wire::Share(std::move(failure)), actions);
  }
  if (!CloseFor(worker, node)) return;
  if (done.has_failure() && !node.failure) {
    node.failure = wire::Share(std::move(*done.mutable_failure()));
    if (MayWaitForOthers(node)) CancelOpenWorkers(node, actions);
  }
  if (node.open_workers.empty()) End(node.ordinal, actions);
}

void Island::OnWorkerFailing(uint32_t worker, wire::Done& failing, Actions& actions) {
  const auto it = nodes_.find(Ordinal(failing.ordinal()));
  if (it == nodes_.end()) return;
  NodeState& node = it->second;
  const bool is_news = node.kind == Kind::kLaunch && node.released && !node.failure &&
                       failing.has_failure() &&
                       std::ranges::binary_search(node.open_workers, worker);
  if (!is_news) return;
  wire::Clip(*failing.mutable_failure());
  node.failure = wire::Share(std::move(*failing.mutable_failure()));
  if (MayWaitForOthers(node)) CancelOpenWorkers(node, actions);
}

bool Island::CloseFor(uint32_t worker, NodeState& node) {
  auto& open = node.open_workers;
  auto position = std::lower_bound(open.begin(), open.end(), worker);
  if (position == open.end() || *position != worker) return false;
  open.erase(position);
  if (!node.admitted || node.kind != Kind::kLaunch) return true;
  ReturnWorker(worker, node);
  // At once, not when the last worker has ended its part: others may use these devices while that one is late.
  const IslandDevice first = workers_[worker].first_device;
  for (auto device = std::lower_bound(node.devices.begin(), node.devices.end(), first);
       device != node.devices.end() && StateOf(*device).worker == worker; ++device)
    ReturnSlot(*device);
  return true;
}

void Island::ReturnSlot(IslandDevice device) {
  DeviceState& state = StateOf(device);
  only_parts_ended_ &= !std::exchange(state.slot_awaited, false);
  --state.slots_taken;
}

void Island::ReturnWorker(uint32_t index, const NodeState& node) {
  WorkerState& worker = workers_[index];
  only_parts_ended_ &= !std::exchange(worker.launches_awaited, false);
  --worker.launches;
  if (node.calls_host) --worker.host_callers;
  if (worker.alone == node.ordinal) worker.alone = {};
}

// All or none: the failure of one part ends the wait of the other workers.
void Island::CancelOpenWorkers(const NodeState& node, Actions& actions) {
  wire::IslandItem item;
  item.mutable_cancel()->add_ordinals(node.ordinal.number());
  *item.mutable_cancel()->mutable_failure() = *node.failure;
  SendToWorkers(node.open_workers, std::move(item), actions);
}

// ER-2: spoils the node's results and cancels it on its workers. Its dependents fail once they are
// taken up.
void Island::FailUnreleased(Ordinal ordinal, wire::FailureRef failure, Actions& actions) {
  NodeState& node = nodes_.at(ordinal);
  if (node.unsent && node.kind == Kind::kUpload) {  // its workers may hold bytes of it
    SendNode(node, std::move(node.message), actions);
    node.unsent = false;
  }
  if (!node.unsent) {
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal.number());
    *item.mutable_cancel()->mutable_failure() = *failure;
    SendToWorkers(node.workers, std::move(item), actions);
  }
  node.failure = std::move(failure);
  EndReads(node);
  End(ordinal, actions);
}

// Ends a node, successful or failed: returns its slots and temporaries, settles its results, and
// drops its use of each storage.
void Island::End(Ordinal ordinal, Actions& actions) {
  auto found = nodes_.find(ordinal);
  NodeState node = std::move(found->second);
  nodes_.erase(found);
  gang_waits_.erase(ordinal);
  ready_.Erase(ordinal, node.devices);
  turns_.erase(ordinal);
  orphans_.erase(ordinal);
  StopWaitingForBytes(node);
  ready_light_.erase(ordinal);
  StopWaitingForMemory(node);
  EndHolding(node);
  wire::Report report;
  report.mutable_done()->set_ordinal(ordinal.number());
  if (node.failure) *report.mutable_done()->mutable_failure() = *node.failure;
  actions.to_controller.push_back(std::move(report));
  if (node.admitted) {
    CreditConsumed(node);
    if (node.kind == Kind::kLaunch)
      for (uint32_t worker : node.open_workers) ReturnWorker(worker, node);
    for (IslandDevice device : node.devices) {
      const bool has_slot = std::binary_search(node.open_workers.begin(), node.open_workers.end(),
                                               StateOf(device).worker);
      if (node.kind == Kind::kLaunch && has_slot) ReturnSlot(device);
      Credit(node.session, device, node.temp_bytes);
      // The memory that donation saved is charged to the results from now on.
      ledger_.Charge(node.session, device, node.alias_bytes);
    }
  }
  unsent_input_failed_ |= node.failure != nullptr && !unsent_.empty();
  for (StorageId id : node.writes) {
    auto it = storages_.find(id);
    if (it == storages_.end()) continue;
    it->second.producer = {};
    if (node.failure && !it->second.failure) it->second.failure = node.failure;
    Unuse(id, ordinal, actions);
  }
  for (StorageId id : node.reads) Unuse(id, ordinal, actions);
  for (Ordinal waiter : node.waiters) Unblock(waiter);
}

// The memory of what a successful node consumed is now free, or belongs to its results.
void Island::CreditConsumed(const NodeState& node) {
  if (node.failure) return;
  for (const Shards& consumed : node.consumed) {
    auto it = storages_.find(consumed.storage);
    if (it == storages_.end()) continue;
    for (uint32_t i = 0; i < consumed.count; ++i) {
      if (auto place = PlaceOf(it->second, consumed.first + i)) Discharge(it->second, *place);
    }
  }
}

// In the order of their first devices.
std::vector<uint32_t> Island::WorkersOf(const std::vector<IslandDevice>& devices) const {
  std::vector<uint32_t> workers;
  std::vector<bool> seen(workers_.size());
  for (IslandDevice device : devices) {
    const uint32_t worker = StateOf(device).worker;
    if (seen[worker]) continue;
    seen[worker] = true;
    workers.push_back(worker);
  }
  return workers;
}

void Island::Unuse(StorageId id, Ordinal node, Actions& actions) {
  auto it = storages_.find(id);
  if (it == storages_.end()) return;
  StorageState& storage = it->second;
  if (storage.uses > 0) --storage.uses;
  std::vector<Shards> unused;
  std::erase_if(storage.leaving, [&](StorageState::Leaving& leaving) {
    if (leaving.last < node || --leaving.uses_left != 0) return false;
    unused.insert(unused.end(), leaving.shards.begin(), leaving.shards.end());
    return true;
  });
  for (const Shards& shards : unused) ReclaimShards(shards, actions);
  Reclaim(id, actions);
}

// Where a shard is in the lists of a storage; none: on another island.
std::optional<size_t> Island::PlaceOf(const StorageState& storage, uint32_t shard) {
  if (storage.shards.empty())
    return shard < storage.devices.size() ? std::optional<size_t>(shard) : std::nullopt;
  auto it = std::lower_bound(storage.shards.begin(), storage.shards.end(), shard);
  if (it == storage.shards.end() || *it != shard) return std::nullopt;
  return static_cast<size_t>(it - storage.shards.begin());
}

void Island::Discharge(StorageState& storage, size_t place) {
  if (place >= storage.charged.size() || !storage.charged[place]) return;
  storage.charged[place] = false;
  Credit(storage.session, storage.devices[place], storage.shard_bytes);
}

void Island::Discharge(StorageState& storage) {
  for (size_t place = 0; place < storage.charged.size(); ++place) Discharge(storage, place);
  storage.charged.clear();
}

// The memory of shards that a worker took with it is free.
void Island::DischargeLost(StorageState& storage) {
  if (storage.lost.empty()) return;
  for (size_t place = 0; place < storage.charged.size(); ++place) {
    if (storage.lost.contains(StateOf(storage.devices[place]).worker)) Discharge(storage, place);
  }
}

// OB-1: the last reference frees the shards everywhere. Shards of a spoiled storage are freed once
// no node uses them: no later node may read them, and the failure record stays here.
void Island::Reclaim(StorageId id, Actions& actions) {
  auto it = storages_.find(id);
  StorageState& storage = it->second;
  if (storage.uses > 0) return;
  DischargeLost(storage);
  if (!storage.freed && !storage.failure) return;
  Discharge(storage);
  bool reclaimed = std::exchange(storage.reclaimed, true);
  const std::vector<uint32_t> workers = WorkersOf(storage.devices);
  if (storage.freed) storages_.erase(it);
  if (reclaimed) return;
  wire::IslandItem item;
  item.mutable_free()->add_storages(id.number());
  SendToWorkers(workers, std::move(item), actions);
}

// OB-1, for shards alone: the storage keeps its other ones.
void Island::ReclaimShards(const Shards& shards, Actions& actions) {
  auto it = storages_.find(shards.storage);
  if (it == storages_.end() || it->second.reclaimed) return;
  std::vector<IslandDevice> devices;
  for (uint32_t i = 0; i < shards.count; ++i) {
    const std::optional<size_t> place = PlaceOf(it->second, shards.first + i);
    if (!place) continue;
    Discharge(it->second, *place);
    devices.push_back(it->second.devices[*place]);
  }
  if (devices.empty()) return;
  wire::IslandItem item;
  wire::ShardRun* run = item.mutable_free()->add_shards();
  run->set_storage(shards.storage.number());
  run->set_first(shards.first);
  run->set_count(shards.count);
  SendToWorkers(WorkersOf(devices), std::move(item), actions);
}

}  // namespace gangway::scheduler
