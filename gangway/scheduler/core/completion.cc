// Node ends, failures, and storages that are no longer needed.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::OnReport(uint32_t worker, wire::Report& report, Time now, Actions& actions) {
  switch (report.report_case()) {
    case wire::Report::kDone:
      return OnWorkerDone(worker, *report.mutable_done(), actions);
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
    case wire::Report::kLoaded:
      if (ExecutableId id(report.loaded().executable());
          report.loaded().has_failure() && executables_.count(id) != 0) {
        load_failures_[id] = report.loaded().failure();
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
  if (!node.released) {  // the worker could not even prepare it
    wire::Failure failure =
        done.has_failure()
            ? done.failure()
            : wire::MakeFailure(absl::StatusCode::kInternal,
                                "a worker reported the end of work that was never released");
    return FailUnreleased(node.ordinal, std::move(failure), actions);
  }
  auto& open = node.open_workers;
  auto position = std::find(open.begin(), open.end(), worker);
  if (position == open.end()) return;
  open.erase(position);
  if (done.has_failure() && !node.failure) {
    node.failure = std::move(*done.mutable_failure());
    if (MayWaitForOthers(node)) CancelOpenWorkers(node, actions);
  }
  if (open.empty()) End(node.ordinal, actions);
}

// All or none: the failure of one part ends the wait of the other workers.
void Island::CancelOpenWorkers(const NodeState& node, Actions& actions) {
  wire::IslandItem item;
  item.mutable_cancel()->add_ordinals(node.ordinal.number());
  *item.mutable_cancel()->mutable_failure() = *node.failure;
  SendToWorkers(node.open_workers, item, actions);
}

// ER-2: spoils the node's results and cancels it on its workers. Its dependents fail once they are
// taken up.
void Island::FailUnreleased(Ordinal ordinal, wire::Failure failure, Actions& actions) {
  NodeState& node = nodes_.at(ordinal);
  if (node.unsent && node.kind == Kind::kUpload) {  // its workers may hold bytes of it
    SendNode(node, std::move(node.message), actions);
    node.unsent = false;
  }
  if (!node.unsent) {
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal.number());
    *item.mutable_cancel()->mutable_failure() = failure;
    SendToWorkers(node.workers, item, actions);
  }
  node.failure = std::move(failure);
  for (StorageId id : node.reads) {
    auto it = storages_.find(id);
    if (it == storages_.end()) continue;
    auto& consumes = node.consumes;
    if (std::find(consumes.begin(), consumes.end(), id) != consumes.end()) continue;
    if (--it->second.unreleased_readers == 0 && it->second.consumer != Ordinal())
      Unblock(it->second.consumer);
  }
  End(ordinal, actions);
}

// Ends a node, successful or failed: returns its slots and temporaries, settles its results, and
// drops its use of each storage.
void Island::End(Ordinal ordinal, Actions& actions) {
  auto found = nodes_.find(ordinal);
  NodeState node = std::move(found->second);
  nodes_.erase(found);
  ready_.Erase(ordinal, node.devices);
  turns_.erase(ordinal);
  StopWaitingForBytes(node);
  ready_light_.erase(ordinal);
  StopWaitingForMemory(node);
  unsent_.erase(ordinal);
  wire::Report report;
  report.mutable_done()->set_ordinal(ordinal.number());
  if (node.failure) *report.mutable_done()->mutable_failure() = *node.failure;
  actions.to_controller.push_back(std::move(report));
  if (node.admitted) {
    for (StorageId id : node.consumes) {  // its memory here is now free, or belongs to the results
      auto it = storages_.find(id);
      if (it == storages_.end() || node.failure) continue;
      for (IslandDevice device : node.devices) {
        if (std::erase(it->second.charged, device) == 0) continue;
        Credit(device, it->second.shard_bytes);
      }
    }
    for (IslandDevice device : node.devices) {
      if (node.kind == Kind::kLaunch) --StateOf(device).slots_taken;
      Credit(device, node.temp_bytes);
      // The memory that donation saved is charged to the results from now on.
      ledger_.Charge(device, node.alias_bytes);
    }
  }
  unsent_input_failed_ |= node.failure.has_value() && !unsent_.empty();
  for (StorageId id : node.writes) {
    auto it = storages_.find(id);
    if (it == storages_.end()) continue;
    it->second.producer = {};
    if (node.failure && !it->second.failure) it->second.failure = *node.failure;
    Unuse(id, actions);
  }
  for (StorageId id : node.reads) Unuse(id, actions);
  for (Ordinal waiter : node.waiters) Unblock(waiter);
}

void Island::Unuse(StorageId id, Actions& actions) {
  auto it = storages_.find(id);
  if (it == storages_.end()) return;
  if (it->second.uses > 0) --it->second.uses;
  Reclaim(id, actions);
}

void Island::Discharge(StorageState& storage) {
  for (IslandDevice device : storage.charged) Credit(device, storage.shard_bytes);
  storage.charged.clear();
}

// OB-1: the last reference frees the shards everywhere. Shards of a spoiled storage are freed once
// no node uses them: no later node may read them, and the failure record stays here.
void Island::Reclaim(StorageId id, Actions& actions) {
  auto it = storages_.find(id);
  StorageState& storage = it->second;
  if (storage.uses > 0 || !(storage.freed || storage.failure)) return;
  Discharge(storage);
  bool reclaimed = std::exchange(storage.reclaimed, true);
  std::vector<uint32_t> workers;
  for (IslandDevice device : storage.devices) {
    uint32_t worker = StateOf(device).worker;
    if (std::find(workers.begin(), workers.end(), worker) == workers.end())
      workers.push_back(worker);
  }
  if (storage.freed) storages_.erase(it);
  if (reclaimed) return;
  wire::IslandItem item;
  item.mutable_free()->add_storages(id.number());
  SendToWorkers(workers, item, actions);
}

}  // namespace gangway::scheduler
