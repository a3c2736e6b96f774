// Items from the controller.
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/describe.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::OnItem(wire::IslandItem& item, Time now) {
  switch (item.item_case()) {
    case wire::IslandItem::kNode:
      return OnNode(*item.mutable_node(), now);
    case wire::IslandItem::kFree:
      return state_.storages.Free(item.free(), state_.nodes.latest());
    case wire::IslandItem::kLoad:
      return state_.executables.Load(item.load());
    case wire::IslandItem::kUnload:
      return state_.executables.NoteUnload(item.unload());
    case wire::IslandItem::kEndSession:
      return OnEndSession(SessionId(item.end_session().session()), now);
    case wire::IslandItem::kReleased:
      return OnReleasedElsewhere(*item.mutable_released());
    case wire::IslandItem::kAdmit:
      return OnTurn(item.admit());
    case wire::IslandItem::kRelease:
      return OnReleaseOfSpanning(item.release(), now);
    case wire::IslandItem::kCancel:
      return OnCancel(item.cancel());
    case wire::IslandItem::kLeave:
      if (state_.fleet.IsUp(item.leave().index(), Incarnation(item.leave().incarnation())))
        state_.outbox.Send(item.leave().index(), item);
      return;
    case wire::IslandItem::kAdmitSession:
      return OnAdmitSession(item.admit_session());
    case wire::IslandItem::kReplaceWorker:
      return OnReplaceWorker(*item.mutable_replace_worker());
    case wire::IslandItem::kProbe:
      return OnProbe(item.probe());
    default:
      return;  // scheduler -> worker items, and those of a newer controller
  }
}

void Island::OnNode(wire::Node& message, Time now) {
  if (state_.nodes.Find(Ordinal(message.ordinal())) != nullptr) return;
  // The Load, if there is one, is ahead of this use in the workers' streams.
  if (message.has_launch())
    state_.executables.LoadAgain(ExecutableId(message.launch().executable()), now);
  Description description = Describe(message, state_, now);
  lifecycle_.Add(std::move(description), std::move(message));
}

void Island::OnEndSession(SessionId session, Time now) {
  std::vector<Ordinal> unreleased;
  for (const auto& [ordinal, node] : state_.nodes.all()) {
    if (node.session == session && !node.released()) unreleased.push_back(ordinal);
  }
  // A client may still see this, on a data stream, if only the controller knows that their link was reset.
  const wire::FailureRef ended = wire::Share(wire::MakeFailure(
      absl::StatusCode::kUnavailable,
      absl::StrCat("session ", session, " has ended: the controller lost its client"),
      "Connect again."));
  for (Ordinal ordinal : unreleased) lifecycle_.FailUnreleased(ordinal, ended);
  state_.callback_holds.EndSession(session);
  for (auto& [ordinal, node] : state_.nodes.all()) {
    if (node.session != session || !node.released()) continue;
    if (node.is_launch()) state_.orphans.Add(ordinal, now);
    // Members of a gang may wait for one that never comes, or for a copy, and others' gangs behind them.
    const bool may_hold_others = node.is_launch() || node.kind() == NodeKind::kCopy;
    if (!may_hold_others || node.failure || !node.may_wait_for_others()) continue;
    lifecycle_.Abort(node, ended);
  }
  state_.fleet.EndSession(session);
  wire::IslandItem item;
  item.mutable_end_session()->set_session(session.number());
  state_.outbox.SendToAll(std::move(item));
}

void Island::OnAdmitSession(const wire::AdmitSession& admit) {
  if (admit.index() >= state_.fleet.worker_count()) return;
  state_.fleet.Admit(SessionId(admit.session()), admit.index());
  wire::IslandItem item;
  *item.mutable_admit_session() = admit;
  state_.outbox.Send(admit.index(), std::move(item));
}

// What follows waits for the next process, as for a worker that is down.
void Island::OnReplaceWorker(wire::ReplaceWorker& replace) {
  if (replace.index() >= state_.fleet.worker_count() || !state_.fleet.IsUp(replace.index())) return;
  WorkerDown down{.worker = replace.index(),
                  .incarnation = state_.fleet.IncarnationOf(replace.index()),
                  .why = std::move(*replace.mutable_why())};
  OnWorkerDown(down);
  state_.outbox.NoteReplaced(std::move(down));
}

void Island::OnReleasedElsewhere(wire::Released& released) {
  for (uint64_t number : released.ordinals()) {
    const Ordinal ordinal(number);
    NodeState* node = state_.nodes.Find(ordinal);
    CopyPart* copy = node == nullptr ? nullptr : node->copy();
    if (copy == nullptr || !copy->from_other_island) continue;  // it has failed here
    copy->from_other_island = false;
    copy->far_senders.assign(released.sources().begin(), released.sources().end());
    lifecycle_.Unblock(ordinal);
  }
}

void Island::OnTurn(const wire::Ordinals& turn) {
  for (uint64_t number : turn.ordinals()) {
    const Ordinal ordinal(number);
    NodeState* node = state_.nodes.Find(ordinal);
    if (node == nullptr || node->stage != NodeStage::kOffered) continue;  // it has failed here
    node->stage = NodeStage::kOnTurn;
    state_.admission.AddTurn(ordinal);
  }
}

void Island::OnReleaseOfSpanning(const wire::Release& release, Time now) {
  for (uint64_t number : release.ordinals()) {
    NodeState* node = state_.nodes.Find(Ordinal(number));
    if (node != nullptr && node->stage == NodeStage::kAdmitted) lifecycle_.Release(*node, now);
  }
}

void Island::OnCancel(const wire::Cancel& cancel) {
  const wire::FailureRef failure = wire::Share(cancel.failure());
  for (uint64_t number : cancel.ordinals()) {
    const NodeState* node = state_.nodes.Find(Ordinal(number));
    if (node == nullptr) continue;
    if (!node->released()) {
      lifecycle_.FailUnreleased(node->ordinal, failure);
    } else if (node->may_wait_for_others()) {
      lifecycle_.CancelOpen(*node, cancel.failure());
    }
  }
}

void Island::OnProbe(uint64_t probe) {
  const Fleet& fleet = state_.fleet;
  const Ledger& ledger = state_.books.ledger();
  wire::Report report;
  wire::Usage* usage = report.mutable_usage();
  usage->set_probe(probe);
  usage->set_nodes(state_.nodes.size());
  usage->set_storages(state_.storages.size());
  for (uint32_t worker = 0; worker < fleet.worker_count(); ++worker)
    *usage->add_workers() = fleet.DataBytesOf(worker);
  usage->mutable_worker_nodes()->Resize(static_cast<int>(fleet.worker_count()), 0);
  for (const auto& [ordinal, node] : state_.nodes.all()) {
    for (uint32_t worker : node.open_workers)
      ++(*usage->mutable_worker_nodes())[static_cast<int>(worker)];
  }
  for (uint32_t i = 0; i < fleet.device_count(); ++i) {
    const IslandDevice device(i);
    wire::DeviceUsage* known = usage->add_devices();
    known->set_device(fleet.IdOf(device).number());
    known->set_bytes(ledger.used_bytes(device));
    known->set_budget_bytes(ledger.budget_bytes(device));
    known->set_peak_bytes(ledger.peak_bytes(device));
    known->set_launches(state_.admission.SlotsTaken(device));
  }
  state_.outbox.Report(std::move(report));
}

}  // namespace gangway::scheduler
