// Node ends, and failures.
#include <algorithm>
#include <utility>

#include "gangway/scheduler/core/lifecycle.h"

namespace gangway::scheduler {
namespace {

wire::IslandItem CancelItem(Ordinal ordinal, const wire::Failure& failure) {
  wire::IslandItem item;
  item.mutable_cancel()->add_ordinals(ordinal.number());
  *item.mutable_cancel()->mutable_failure() = failure;
  return item;
}

}  // namespace

// At once, not when the last worker has ended its part: others may use these devices while that one is late.
bool Lifecycle::Close(uint32_t worker, NodeState& node) {
  auto& open = node.open_workers;
  auto position = std::lower_bound(open.begin(), open.end(), worker);
  if (position == open.end() || *position != worker) return false;
  open.erase(position);
  if (node.admitted() && node.is_launch()) island_.admission.ReturnWorker(worker, node);
  ReturnPutRoom(worker, node);
  return true;
}

void Lifecycle::ReturnPutRoom(uint32_t worker, const NodeState& node) {
  const PutPart* const put = node.put();
  if (put != nullptr && node.stage != NodeStage::kUnsent &&
      island_.put_room.Return(worker, put->cost))
    island_.held_back.LookAgain();
}

void Lifecycle::EndIfClosed(const NodeState& node) {
  if (node.open_workers.empty()) End(node.ordinal);
}

void Lifecycle::CancelOpen(const NodeState& node, const wire::Failure& failure) {
  island_.outbox.Send(node.open_workers, CancelItem(node.ordinal, failure));
}

// All or none: the failure of one part ends the wait of the other workers.
void Lifecycle::FailReleased(NodeState& node, wire::FailureRef failure) {
  node.failure = std::move(failure);
  if (node.may_wait_for_others()) CancelOpen(node, *node.failure);
}

void Lifecycle::Abort(NodeState& node, wire::FailureRef failure) {
  node.failure = std::move(failure);
  CancelOpen(node, *node.failure);
}

// Its dependents fail once they are taken up.
void Lifecycle::FailUnreleased(Ordinal ordinal, wire::FailureRef failure) {
  NodeState& node = island_.nodes.At(ordinal);
  if (node.stage == NodeStage::kUnsent && node.is_upload()) {  // its workers may hold bytes of it
    SendNode(node, std::move(node.message));
    node.stage = NodeStage::kBlocked;
  }
  if (node.stage != NodeStage::kUnsent)
    island_.outbox.Send(node.workers, CancelItem(ordinal, *failure));
  node.failure = std::move(failure);
  EndReads(node);
  End(ordinal);
}

// Ends a node, successful or failed: returns its slots and temporaries, settles its results, and
// drops its use of each storage.
void Lifecycle::End(Ordinal ordinal) {
  const NodeState node = island_.nodes.Take(ordinal);
  island_.deadlocks.Forget(ordinal);
  island_.orphans.Remove(ordinal);
  island_.admission.Remove(node);
  island_.waits.End(WaitFor::kBytes, ordinal);
  EndMemoryWait(node);
  if (island_.held_back.Remove(node)) island_.waits.End(WaitFor::kWorkers, ordinal);
  wire::Report report;
  report.mutable_done()->set_ordinal(ordinal.number());
  if (node.failure) *report.mutable_done()->mutable_failure() = *node.failure;
  island_.outbox.Report(std::move(report));
  if (node.admitted()) ReturnAll(node);
  for (uint32_t worker : node.open_workers) ReturnPutRoom(worker, node);
  if (node.failure) island_.held_back.LookAgain();
  for (StorageId id : node.writes) island_.storages.Settle(id, ordinal, node.failure);
  if (node.is_fetch()) island_.storages.EndFetch(node.reads);
  for (StorageId id : node.reads) island_.storages.EndUse(id, ordinal);
  for (Ordinal waiter : node.waiters) Unblock(waiter);
  for (Ordinal waiter : node.enqueue_waiters) Unblock(waiter);
  for (Ordinal waiter : node.end_waiters) Unblock(waiter);
}

void Lifecycle::ReturnAll(const NodeState& node) {
  if (node.is_launch() && !node.failure)
    island_.storages.Consume(node.ordinal, node.launch()->consumed);
  if (node.is_launch()) {
    for (uint32_t worker : node.open_workers) island_.admission.ReturnWorker(worker, node);
  }
  island_.books.Credit(node.session, node.devices(), node.temp_bytes);
  // The memory that donation saved is charged to the results from now on.
  island_.books.Charge(node.session, node.devices(), node.alias_bytes);
}

// A node that other workers still run ends when they report Done: until then they use its storages (OB-1).
void Lifecycle::LoseWorker(uint32_t worker, const wire::Failure& lost) {
  std::vector<Ordinal> failed;
  for (const auto& [ordinal, node] : island_.nodes.all()) {
    const bool takes_part =
        std::find(node.workers.begin(), node.workers.end(), worker) != node.workers.end();
    if (takes_part && node.stage != NodeStage::kUnsent) failed.push_back(ordinal);
  }
  for (Ordinal ordinal : failed) {
    NodeState* node = island_.nodes.Find(ordinal);
    if (node == nullptr) continue;
    wire::Failure failure = lost;
    failure.set_gang(ordinal.number());
    wire::SetProgram(node->program, failure);
    if (!node->released()) {
      FailUnreleased(ordinal, wire::Share(std::move(failure)));
      continue;
    }
    if (!node->failure) node->failure = wire::Share(std::move(failure));
    Close(worker, *node);
    if (node->open_workers.empty()) {
      End(ordinal);
    } else if (node->may_wait_for_others()) {
      CancelOpen(*node, *node->failure);
    }
  }
}

}  // namespace gangway::scheduler
