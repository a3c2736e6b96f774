// Nodes come, are linked to their producers, and are held back while a worker is down.
#include "gangway/scheduler/core/lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::scheduler {

void Lifecycle::Add(Description description, wire::Node message) {
  NodeState node = std::move(description.node);
  for (size_t i = 0; i < node.writes.size(); ++i)
    island_.storages.Write(node, node.writes[i], description.results, description.result_bytes[i]);
  if (message.has_copy()) island_.storages.NoteCopied(node.reads, message.copy());
  if (node.is_fetch()) island_.storages.BeginFetch(node.reads);
  wire::FailureRef failure = std::move(description.failure);
  wire::FailureRef lost_input = Link(node);
  if (!failure) failure = lost_input;
  if (!failure) failure = InputFailure(node);
  if (!failure) failure = LostShard(message);
  if (!failure) failure = LostBytes(message);
  NodeState& kept = island_.nodes.Add(std::move(node));
  if (failure) {
    kept.stage = NodeStage::kUnsent;
    kept.message = std::move(message);
    return FailUnreleased(kept.ordinal, std::move(failure));
  }
  if (MustWait(kept)) {
    kept.stage = NodeStage::kUnsent;
    island_.held_back.AddWaiting(kept);
    kept.message = std::move(message);
  } else if (MustHoldBack(kept)) {
    HoldBack(kept);
    kept.message = std::move(message);
  } else {
    SendNode(kept, std::move(message));
  }
  if (kept.blockers == 0) MakeReady(kept);
  NoteTwoWayCopy(kept);
}

// Counts the node's blockers. Every storage that it reads or writes gets one use, which End() returns.
wire::FailureRef Lifecycle::Link(NodeState& node) {
  wire::FailureRef failure;
  for (StorageId id : node.writes) island_.storages.Use(id);
  std::vector<StorageId> known;
  for (StorageId id : node.reads) {
    const LaunchPart* launch = node.launch();
    const bool consumes = launch != nullptr && std::ranges::binary_search(launch->consumes, id);
    const auto reading = island_.storages.Read(id, node.ordinal, consumes);
    if (!reading) {
      failure = island_.storages.last_loss();
      if (!failure) {
        failure = wire::Share(wire::MakeFailure(
            absl::StatusCode::kDataLoss,
            absl::StrCat("input storage ", id, " is not on island ", island_.config.island)));
      }
      continue;
    }
    known.push_back(id);
    island_.nodes.Block(node, reading->producer);
    if (reading->waits_for_readers) ++node.blockers;
  }
  node.reads = std::move(known);
  const CopyPart* copy = node.copy();
  if (copy != nullptr && copy->from_other_island) ++node.blockers;
  return failure;
}

void Lifecycle::SendNode(const NodeState& node, wire::Node message) {
  wire::IslandItem item;
  *item.mutable_node() = std::move(message);
  if (item.node().has_launch())
    item.mutable_node()->mutable_launch()->set_island_epoch(island_.fleet.epoch());
  if (const PutPart* put = node.put())
    for (const uint32_t worker : node.workers) island_.put_room.Take(worker, put->cost);
  island_.outbox.Send(node.workers, std::move(item));
}

void Lifecycle::MakeReady(NodeState& node) {
  node.stage = NodeStage::kReady;
  island_.admission.AddReady(node);
}

void Lifecycle::Unblock(Ordinal ordinal) {
  NodeState* node = island_.nodes.Unblock(ordinal);
  if (node == nullptr) return;
  if (node->blockers == 0 && island_.held_back.EndWaiting(ordinal)) {
    ++node->blockers;  // until it is sent
    return;
  }
  if (node->blockers == 0) MakeReady(*node);
  NoteTwoWayCopy(*node);
}

void Lifecycle::NoteEnqueued(NodeState& node) {
  if (--node.workers_to_enqueue > 0) return;
  for (Ordinal waiter : std::exchange(node.enqueue_waiters, {})) Unblock(waiter);
}

void Lifecycle::NoteTwoWayCopy(const NodeState& node) {
  const CopyPart* copy = node.copy();
  if (copy != nullptr && copy->from_other_island && copy->to_other_island && node.blockers == 1)
    two_way_copies_.push_back(node.ordinal);
}

void Lifecycle::ReportTwoWayCopies() {
  for (Ordinal ordinal : two_way_copies_) {
    NodeState* node = island_.nodes.Find(ordinal);
    if (node == nullptr || !node->copy()->to_other_island) continue;
    node->copy()->to_other_island = false;
    island_.outbox.ReportReleased(ordinal);
  }
  two_way_copies_.clear();
}

// --- Held back ---

// Of a copy whose shards cross between islands in both directions, the sides would wait for one another.
bool Lifecycle::MustWait(const NodeState& node) {
  if (node.dispatch == wire::DISPATCH_PARALLEL || node.blockers == 0) return false;
  const CopyPart* copy = node.copy();
  return copy == nullptr || !copy->from_other_island || !copy->to_other_island;
}

// A node that reads results of an unsent node must wait too: its workers would not know them. So must one that consumes
// what an earlier unsent node reads: its workers would hear of the donation first.
bool Lifecycle::MustHoldBack(const NodeState& node) const {
  auto is_down = [this](uint32_t worker) { return !island_.fleet.IsUp(worker); };
  auto is_full = [this](uint32_t worker) { return island_.put_room.IsFull(worker); };
  auto is_unsent = [this](StorageId id) {
    return island_.held_back.Contains(island_.storages.ProducerOf(id));
  };
  auto is_read_before = [this, &node](StorageId id) {
    return island_.held_back.IsReadBefore(id, node.ordinal);
  };
  return std::ranges::any_of(node.workers, is_down) ||
         (node.put() != nullptr && std::ranges::any_of(node.workers, is_full)) ||
         std::ranges::any_of(node.reads, is_unsent) ||
         (node.is_launch() && std::ranges::any_of(node.launch()->consumes, is_read_before));
}

void Lifecycle::HoldBack(NodeState& node) {
  node.stage = NodeStage::kUnsent;
  ++node.blockers;
  island_.held_back.Add(node);
  NoteWorkerWait(node, node.arrived);
}

// Only for workers that are down: what it waits for otherwise has a deadline, or an end, of its own.
void Lifecycle::NoteWorkerWait(const NodeState& node, Time now) {
  auto is_down = [this](uint32_t worker) { return !island_.fleet.IsUp(worker); };
  if (std::ranges::any_of(node.workers, is_down)) {
    island_.waits.Begin(WaitFor::kWorkers, node.ordinal, now);
  } else {
    island_.waits.End(WaitFor::kWorkers, node.ordinal);
  }
}

// In ordinal order, so that a producer is sent, or fails, before its readers.
void Lifecycle::ResumeHeldBack(Time now) {
  const std::vector<Ordinal> held_back(island_.held_back.to_look_at().begin(),
                                       island_.held_back.to_look_at().end());
  island_.held_back.NoteLooked();  // what fails below lets others be looked at again
  for (Ordinal ordinal : held_back) {
    NodeState& node = island_.nodes.At(ordinal);
    wire::FailureRef failure = InputFailure(node);
    if (!failure) failure = LostShard(node.message);
    if (!failure) failure = LostBytes(node.message);
    if (failure) {
      FailUnreleased(ordinal, std::move(failure));
      continue;
    }
    if (MustHoldBack(node)) {
      NoteWorkerWait(node, now);
      continue;
    }
    island_.held_back.Remove(node);
    island_.waits.End(WaitFor::kWorkers, ordinal);
    node.stage = NodeStage::kBlocked;
    SendNode(node, std::move(node.message));
    Unblock(ordinal);
  }
}

// --- Why a node cannot run ---

wire::FailureRef Lifecycle::InputFailure(const NodeState& node) const {
  for (StorageId id : node.reads) {
    if (auto failure = island_.storages.FailureOf(id)) return failure;
  }
  return nullptr;
}

// A shard that it reads here is gone. Nodes that are with their workers need no such look, since they fail with the
// worker.
wire::FailureRef Lifecycle::LostShard(const wire::Node& message) const {
  const Storages& storages = island_.storages;
  for (const wire::CopiedArray& array : message.copy().arrays()) {
    if (auto failure = storages.LostShard(array.source(), message.copy().source_devices()))
      return failure;
  }
  if (message.has_fetch())
    return storages.LostShard(message.fetch().source(), message.fetch().devices());
  if (!message.has_launch()) return nullptr;
  const Executable* executable =
      island_.executables.Find(ExecutableId(message.launch().executable()));
  if (executable == nullptr) return nullptr;
  for (const wire::ArrayRef& argument : message.launch().arguments()) {
    if (auto failure = storages.LostShard(argument, executable->load.devices())) return failure;
  }
  return nullptr;
}

// DATA_LOSS if an upload's bytes went to a worker incarnation that is gone: its successor would
// wait for them forever.
wire::FailureRef Lifecycle::LostBytes(const wire::Node& message) const {
  if (!message.has_upload()) return nullptr;
  for (const wire::Destination& to : message.upload().destinations()) {
    if (to.island() != island_.config.island || to.index() >= island_.fleet.worker_count())
      continue;
    if (island_.fleet.MayGetBytes(to)) continue;
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDataLoss,
                          "the bytes of this array were sent to a worker process that is gone",
                          "Make the array again; the worker is restarted by its supervisor.");
    failure.set_worker(island_.fleet.NameOf(to.index()));
    if (!to.next()) failure.set_incarnation(to.incarnation());
    failure.set_gang(message.ordinal());
    return wire::Share(std::move(failure));
  }
  return nullptr;
}

}  // namespace gangway::scheduler
