// Handles events and the ends of nodes; preparation is in prepare.cc.
#include "gangway/worker/core/worker_core.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/wire/failure.h"

namespace gangway::worker {

WorkerCore::WorkerCore(const Identity& identity)
    : identity_(identity),
      fleet_(identity.device_count),
      executables_(identity),
      storages_(identity.name),
      uploads_(identity) {}

std::vector<Action> WorkerCore::Step(Event event) {
  actions_.clear();
  std::visit([this](auto& e) { On(e); }, event);
  SettleWaiters();
  return std::exchange(actions_, {});
}

Counts WorkerCore::counts() const {
  return {storages_.size(), nodes_.size(), executables_.size(), uploads_.size()};
}

void WorkerCore::Clear() {
  nodes_.clear();
  storages_.Clear();
  uploads_.Clear();
  executables_.Clear();
}

void WorkerCore::On(ItemArrived& event) {
  wire::IslandItem& item = event.item;
  switch (item.item_case()) {
    case wire::IslandItem::kNode:
      return Prepare(*item.mutable_node());
    case wire::IslandItem::kRelease:
      for (int i = 0; i < item.release().ordinals_size(); ++i) {
        Release(Ordinal(item.release().ordinals(i)),
                OrderPosition(i < item.release().order_positions_size()
                                  ? item.release().order_positions(i)
                                  : 0));
      }
      return;
    case wire::IslandItem::kCancel:
      for (uint64_t number : item.cancel().ordinals())
        Cancel(Ordinal(number), item.cancel().failure());
      return;
    case wire::IslandItem::kFree:
      for (uint64_t storage : item.free().storages()) storages_.Free(StorageId(storage), actions_);
      for (const wire::ShardRun& run : item.free().shards()) storages_.FreeShards(run, actions_);
      return;
    case wire::IslandItem::kLoad: {
      const ExecutableId id(item.load().executable());
      if (!executables_.Load(*item.mutable_load(), fleet_, actions_))
        ReportLoaded(id, executables_.Find(id)->failure);
      return;
    }
    case wire::IslandItem::kUnload:
      for (uint64_t number : item.unload().executables())
        executables_.Unload(ExecutableId(number), actions_);
      return;
    case wire::IslandItem::kOpenDevices:
      return Open(item.open_devices());
    case wire::IslandItem::kEndSession:
      return EndSession(SessionId(item.end_session().session()));
    case wire::IslandItem::kPeers:
      for (wire::Worker& other : *item.mutable_peers()->mutable_workers()) OnPeer(other);
      return;
    case wire::IslandItem::kProbe:
      return Emit(ReportUsage{item.probe()});
    case wire::IslandItem::kLeave:  // handled by the service
    case wire::IslandItem::kWaitCheck:
    case wire::IslandItem::kEndWorker:
    case wire::IslandItem::kAdmitSession:
      return;
    case wire::IslandItem::kReleased:  // between controller and scheduler
    case wire::IslandItem::kAdmit:
    case wire::IslandItem::kReplaceWorker:
    case wire::IslandItem::ITEM_NOT_SET:
      return Emit(LogWarning{
          absl::StrCat("An item of kind ", static_cast<int>(item.item_case()),
                       " came from the scheduler and was ignored; do the versions match?")});
  }
}

void WorkerCore::Open(const wire::OpenDevices& open) {
  fleet_.Open(open);
  if (open.devices_size() != identity_.device_count) {
    Emit(LogWarning{absl::StrCat("The scheduler named ", open.devices_size(), " devices for ",
                                 identity_.name, ", which has ", identity_.device_count)});
  }
}

void WorkerCore::OnPeer(wire::Worker& other) {
  WorkerRef worker = fleet_.UpdatePeer(other);
  if (worker != nullptr) return Emit(UpdatePeer{std::move(worker)});
  Emit(LogWarning{absl::StrCat("A member of epoch ", other.island_epoch(),
                               " was named and ignored: the island is in epoch ", fleet_.epoch())});
}

void WorkerCore::On(ExecutableLoaded& event) {
  if (event.failure) executables_.FailLoad(event.executable, *event.failure);
  ReportLoaded(event.executable, event.failure);
}

void WorkerCore::On(UploadShardStaged& event) {
  const UploadKey key{event.session, event.upload};
  uploads_.Stage(key, event.shard, event.bytes, actions_);
  TryFill(key);
}

void WorkerCore::On(UploadRefused& event) {
  const UploadKey key{event.session, event.upload};
  uploads_.Refuse(key, std::move(event.failure), event.unwanted);
  TryFill(key);
}

void WorkerCore::On(UploadsMoved& event) {
  wire::Staging moved;
  for (UploadId upload : event.uploads) {
    const auto progress = uploads_.ProgressOf({event.session, upload});
    if (progress && nodes_.at(progress->node).released) moved.add_ordinals(progress->node.number());
  }
  if (!moved.ordinals().empty()) *reports_.add_reports()->mutable_staging() = std::move(moved);
}

void WorkerCore::On(NodeEnded& event) {
  auto entry = nodes_.find(event.ordinal);
  if (entry == nodes_.end()) {
    return Emit(LogWarning{absl::StrCat("Node ", event.ordinal, " ended twice or is unknown")});
  }
  Node& node = entry->second;
  node.prepared = false;
  node.ended = true;
  node.held = {};
  if (node.kind == Node::Kind::kFetch) node.fetch_shards = std::move(event.unsent_shards);
  if (!event.failure) return Finish(event.ordinal, std::nullopt);
  NoteFailure(event.ordinal, node, *std::move(event.failure));
}

void WorkerCore::On(MemberFailed& event) {
  const auto entry = nodes_.find(event.ordinal);
  if (entry == nodes_.end()) return;
  NoteFailure(event.ordinal, entry->second, std::move(event.failure));
}

void WorkerCore::NoteFailure(Ordinal ordinal, Node& node, wire::Failure failure) {
  if (failure.gang() == 0) failure.set_gang(ordinal.number());
  node.failure = std::move(failure);
  SettleFailure(ordinal);
}

void WorkerCore::On(RoundEnded&) {
  if (reports_.reports_size() != 0) Emit(SendReports{std::exchange(reports_, {})});
}

void WorkerCore::On(Stopping& event) {
  storages_.PoisonAll(event.failure, actions_);
  for (const auto& [ordinal, node] : nodes_) {
    if (node.kind == Node::Kind::kLaunch && node.prepared)
      Emit(CancelLaunch{ordinal, node.held, event.failure});
  }
}

void WorkerCore::Release(Ordinal ordinal, OrderPosition position) {
  auto entry = nodes_.find(ordinal);
  if (entry == nodes_.end()) {
    Emit(SkipPosition{position});
    return ReportDone(
        ordinal, identity_.Fail(absl::StatusCode::kDataLoss,
                                "A node was released that this worker does not have; the worker "
                                "was restarted, or a message was lost.",
                                ordinal, nullptr));
  }
  Node& node = entry->second;
  if (node.released) return Emit(LogWarning{absl::StrCat("Node ", ordinal, " was released twice")});
  node.released = true;
  node.order_position = position;
  if (node.is_sequential) ReportEnqueued(ordinal);
  if (std::optional<wire::Failure> failure = FailureBefore(ordinal, node))
    return Finish(ordinal, std::move(failure));
  RunNode(ordinal, node);
}

void WorkerCore::RunNode(Ordinal ordinal, Node& node) {
  if (node.upload) return TryFill({node.session, *node.upload});
  if (node.prepared) {
    // The senders of a copy have been described by now.
    if (!node.sources.empty()) Emit(NamePeers{ordinal, node.held, fleet_.SendersOn(node.sources)});
    return Emit(Run{ordinal, node.held, node.order_position});
  }
  Finish(ordinal, std::nullopt);  // no part of it is on this worker
}

// The failure, known at the release, that keeps the node from running on all its local devices.
std::optional<wire::Failure> WorkerCore::FailureBefore(Ordinal ordinal, const Node& node) const {
  if (node.failure) return node.failure;
  for (StorageId input : node.inputs) {
    const Storages::State state = storages_.StateOf(input);
    if (state == Storages::State::kUnknown) {
      return identity_.Fail(absl::StatusCode::kDataLoss,
                            absl::StrCat("Storage ", input, " was freed before it was used."),
                            ordinal, node.program);
    }
    if (state == Storages::State::kFailed) return *storages_.FailureOf(input);
  }
  if (node.kind == Node::Kind::kLaunch) {
    const Executable* const executable = executables_.Find(node.executable);
    if (executable != nullptr) return executable->failure;
  }
  return std::nullopt;
}

void WorkerCore::TryFill(const UploadKey& key) {
  const auto progress = uploads_.ProgressOf(key);
  if (!progress) return;  // the bytes came before the node
  Node& node = nodes_.at(progress->node);
  if (progress->failure != nullptr) {
    node.failure = *progress->failure;
    if (node.released) Finish(progress->node, node.failure);
    return;
  }
  if (!progress->complete || !node.released) return;
  const StorageId storage = node.outputs.front();
  if (!storages_.HasShards(storage)) {
    return Finish(progress->node, identity_.Fail(absl::StatusCode::kDataLoss,
                                                 absl::StrCat("Storage ", storage,
                                                              " was freed before it was filled."),
                                                 progress->node, nullptr));
  }
  node.prepared = true;
  Emit(FillUpload{progress->node, key.session, key.upload, storage, storages_.HeldOf(storage)});
  uploads_.Take(key);
  node.upload.reset();
}

void WorkerCore::Cancel(Ordinal ordinal, const wire::Failure& failure) {
  auto entry = nodes_.find(ordinal);
  if (entry == nodes_.end()) return;  // it never arrived, or has ended
  Node& node = entry->second;
  wire::Failure reason = failure;
  if (reason.code() == 0)
    reason = wire::MakeFailure(absl::StatusCode::kCancelled, "The work was cancelled.");
  if (node.released) return CancelReleased(ordinal, node, reason);
  if (node.prepared) Emit(Discard{ordinal, node.held});
  for (StorageId output : node.outputs) storages_.Settle(output, reason, actions_);
  if (!node.fetch_shards.empty())
    Emit(FailFetch{node.session, node.fetch, node.fetch_shards, reason});
  ForgetUpload(node);
  nodes_.erase(entry);
}

void WorkerCore::CancelReleased(Ordinal ordinal, Node& node, const wire::Failure& failure) {
  if (node.transfers && node.prepared) return Emit(CancelTransfers{ordinal, node.held, failure});
  if (node.kind == Node::Kind::kLaunch && node.prepared)
    return Emit(CancelLaunch{ordinal, node.held, failure});
  if (!node.upload) return;  // it waits for no bytes, and ends by itself
  wire::Failure reason = failure;
  if (reason.worker().empty()) {
    reason.set_worker(identity_.name);
    reason.set_incarnation(identity_.incarnation.number());
  }
  Finish(ordinal, std::move(reason));
}

void WorkerCore::ForgetUpload(Node& node) {
  if (!node.upload) return;
  uploads_.Forget({node.session, *node.upload}, actions_);
  node.upload.reset();
}

void WorkerCore::EndSession(SessionId session) {
  for (const UploadKey& key : uploads_.KeysOf(session)) {
    const std::optional<Ordinal> ordinal = uploads_.Abandon(key, actions_);
    if (!ordinal) continue;
    Node& node = nodes_.at(*ordinal);
    node.upload.reset();
    node.failure = identity_.Fail(
        absl::StatusCode::kCancelled,
        absl::StrCat("The session ended before all bytes of upload ", key.upload, " had arrived."),
        *ordinal, nullptr);
    if (node.released) Finish(*ordinal, node.failure);
  }
  Emit(EndStreams{session});
}

// `failure` is the verdict (none: it ran). It is passed by value, since callers pass a failure of
// a storage or node that this call may change or erase.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void WorkerCore::Finish(Ordinal ordinal, std::optional<wire::Failure> failure) {
  auto entry = nodes_.find(ordinal);
  Node node = std::move(entry->second);
  nodes_.erase(entry);
  if (node.prepared) {
    Emit(Discard{ordinal, node.held, node.order_position});
  } else if (node.released && !node.ended && node.kind == Node::Kind::kLaunch) {
    Emit(SkipPosition{node.order_position});
  }
  for (StorageId output : node.outputs) storages_.Settle(output, failure, actions_);
  if (failure && !node.fetch_shards.empty())
    Emit(FailFetch{node.session, node.fetch, node.fetch_shards, *failure});
  ForgetUpload(node);
  ReportDone(ordinal, failure);
}

void WorkerCore::ReportDone(Ordinal ordinal, const std::optional<wire::Failure>& failure) {
  wire::Done& done = *reports_.add_reports()->mutable_done();
  done.set_ordinal(ordinal.number());
  if (failure) *done.mutable_failure() = *failure;
}

void WorkerCore::ReportEnqueued(Ordinal ordinal) {
  auto& reports = *reports_.mutable_reports();
  const bool extends = !reports.empty() && reports.rbegin()->has_released();
  wire::Report& report = extends ? *reports.rbegin() : *reports.Add();
  report.mutable_released()->add_ordinals(ordinal.number());
}

void WorkerCore::ReportLoaded(ExecutableId executable,
                              const std::optional<wire::Failure>& failure) {
  wire::Loaded& loaded = *reports_.add_reports()->mutable_loaded();
  loaded.set_executable(executable.number());
  if (failure) *loaded.mutable_failure() = *failure;
}

// A device has reported that the node failed. If an input has failed, that is the cause; while an input
// is pending, the failure is not reported.
void WorkerCore::SettleFailure(Ordinal ordinal) {
  auto entry = nodes_.find(ordinal);
  if (entry == nodes_.end()) return;
  std::optional<wire::Failure> verdict = entry->second.failure;
  std::optional<StorageId> pending;
  for (StorageId input : entry->second.inputs) {
    const Storages::State state = storages_.StateOf(input);
    if (state == Storages::State::kFailed) {
      verdict = *storages_.FailureOf(input);
      pending.reset();
      break;
    }
    if (state == Storages::State::kPending && !pending) pending = input;
  }
  if (pending) return storages_.Await(*pending, ordinal);
  if (entry->second.ended) return Finish(ordinal, std::move(verdict));
  wire::Done& failing = *reports_.add_reports()->mutable_failing();
  failing.set_ordinal(ordinal.number());
  *failing.mutable_failure() = *std::move(verdict);
}

// Iterative, not recursive: a failure may propagate down a chain of any length.
void WorkerCore::SettleWaiters() {
  for (std::vector<Ordinal> woken = storages_.TakeWoken(); !woken.empty();
       woken = storages_.TakeWoken()) {
    for (Ordinal ordinal : woken) SettleFailure(ordinal);
  }
}

}  // namespace gangway::worker
