// Events, and what time brings: deadlines (TM-1), orphans, and books that are to be mended.
#include "gangway/scheduler/core/island.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/explain.h"
#include "gangway/scheduler/core/launches.h"
#include "gangway/scheduler/core/view.h"

namespace gangway::scheduler {

void Island::Step(Event event, Time now, Actions& actions) {
  only_parts_ended_ = std::holds_alternative<FromWorker>(event);
  Dispatch(event, now);
  // If only parts ended, nothing is free that others wait for. A gang over many workers ends in as many steps, and
  // others may wait behind it.
  only_parts_ended_ &=
      !state_.admission.TakeWoken() && !state_.books.freed() && !state_.held_back.must_look();
  const std::optional<Time> deadline = next_deadline();
  if (!only_parts_ended_ || (deadline && now >= *deadline)) FinishStep(now);
  state_.outbox.TakeInto(actions);
}

void Island::Dispatch(Event& event, Time now) {
  if (auto* batch = std::get_if<FromController>(&event)) {
    for (wire::IslandItem& item : *batch->batch.mutable_items()) OnItem(item, now);
  } else if (auto* reports = std::get_if<FromWorker>(&event)) {
    if (!state_.fleet.IsUp(reports->worker, reports->incarnation))
      return;  // of an incarnation that was declared dead
    for (wire::Report& report : *reports->batch.mutable_reports())
      OnReport(reports->worker, report, now);
  } else if (auto* up = std::get_if<WorkerUp>(&event)) {
    OnWorkerUp(*up, now);
  } else if (auto* down = std::get_if<WorkerDown>(&event)) {
    OnWorkerDown(*down);
  } else if (auto* beat = std::get_if<WorkerBeat>(&event)) {
    OnWorkerBeat(*beat, now);
  }
}

// What follows from the step's event, and from the time that has passed.
void Island::FinishStep(Time now) {
  OnWorkerDeadlines(now);
  if (state_.orphans.IsDue(now)) OnOrphans(now);
  OnMemoryDeadlines(now);
  OnUploadDeadlines(now);
  if (state_.held_back.must_look()) lifecycle_.ResumeHeldBack(now);
  if (state_.executables.must_unload()) {
    std::set<ExecutableId> needed;
    for (Ordinal ordinal : state_.held_back.nodes()) {
      if (const LaunchPart* launch = state_.nodes.At(ordinal).launch())
        needed.insert(launch->executable);
    }
    state_.executables.Unload(needed);
  }
  MendBooks();  // before memory is given out
  lifecycle_.Schedule(now);
  while (state_.held_back
             .must_look()) {  // what is dispatched after what was released, or has failed, now
    lifecycle_.ResumeHeldBack(now);
    lifecycle_.Schedule(now);
  }
  MendBooks();
  lifecycle_.ReportTwoWayCopies();
}

std::optional<Time> Island::next_deadline() const {
  std::optional<Time> next = state_.waits.next_deadline();
  const std::optional<Time> look = state_.orphans.next_look();
  return look && (!next || *look < *next) ? look : next;
}

void Island::Explain(const wire::WhyRequest& request, Time now, const std::vector<Time>& heard,
                     wire::WhyReply& reply) const {
  scheduler::Explain({state_, now, heard}, request, reply);
}

void Island::OnWorkerDeadlines(Time now) {
  for (Ordinal ordinal : state_.waits.Due(WaitFor::kWorkers, now)) {
    const NodeState& node = state_.nodes.At(ordinal);  // only its own wait ends when it fails
    auto down = std::ranges::find_if(
        node.workers, [this](uint32_t worker) { return !state_.fleet.IsUp(worker); });
    if (down == node.workers.end()) continue;
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDeadlineExceeded,
                          absl::StrCat("a worker that this needs has been down for ",
                                       state_.waits.limit(WaitFor::kWorkers).count(), " ms"),
                          "See `gangway status`; start the worker.");
    failure.set_worker(state_.fleet.NameOf(*down));
    wire::SetProgram(node.program, failure);
    failure.set_gang(ordinal.number());
    lifecycle_.FailUnreleased(ordinal, wire::Share(std::move(failure)));
  }
}

void Island::OnMemoryDeadlines(Time now) {
  for (Ordinal ordinal : state_.waits.Due(WaitFor::kMemory, now)) {
    const NodeState& node = state_.nodes.At(ordinal);
    const bool fits = state_.admission.HasMemory(node);
    lifecycle_.EndMemoryWait(node);
    if (!fits) {
      lifecycle_.FailUnreleased(ordinal, MemoryFailure(node));
    } else if (node.stage != NodeStage::kOnTurn) {
      state_.admission.AddReady(node);  // twice is once
    }
  }
}

// GS-2: names the sizes and the sessions that hold the fullest device's memory.
wire::FailureRef Island::MemoryFailure(const NodeState& node) const {
  const Ledger& ledger = state_.books.ledger();
  const IslandDevice device = ledger.Fullest(node.devices());
  const DeviceId id = state_.fleet.IdOf(device);
  std::string holders;
  for (const auto& [session, bytes] : ledger.HoldersOf(device)) {
    absl::StrAppend(&holders, holders.empty() ? "" : ", ", "session ", session,
                    session == node.session ? " (this one) " : " ", bytes, " bytes");
  }
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("waited ", state_.waits.limit(WaitFor::kMemory).count(), " ms for ",
                   node.new_bytes(), " bytes on device ", id, ": ", ledger.used_bytes(device),
                   " of ", ledger.budget_bytes(device), " bytes are held, by ",
                   holders.empty() ? "no session" : holders),
      "Drop arrays that are no longer needed, donate arguments, or raise the budget.");
  wire::SetProgram(node.program, failure);
  failure.set_gang(node.ordinal.number());
  failure.set_device(id.number());
  return wire::Share(std::move(failure));
}

// Cancels the upload on the workers that still wait, which then report the failure. A worker
// that has all its bytes by then succeeds.
void Island::OnUploadDeadlines(Time now) {
  for (Ordinal ordinal : state_.waits.Due(WaitFor::kBytes, now)) {
    const NodeState& node = state_.nodes.At(ordinal);
    state_.waits.End(WaitFor::kBytes, ordinal);
    std::string workers;
    for (uint32_t worker : node.open_workers)
      absl::StrAppend(&workers, workers.empty() ? "" : ", ", state_.fleet.NameOf(worker));
    wire::Failure failure = wire::MakeFailure(
        absl::StatusCode::kDeadlineExceeded,
        absl::StrCat("no bytes of this array reached ", workers, " for ",
                     state_.waits.limit(WaitFor::kBytes).count(),
                     " ms: waited for the client of session ", node.session, " to send them"),
        "Check whether the client still runs; then make the array again.");
    failure.set_gang(ordinal.number());
    state_.outbox.Notice(failure.message());
    lifecycle_.CancelOpen(node, failure);
  }
}

// A launch whose session has ended is wanted by no client, but the device runtime cannot end it. When it has come first
// on a device for `orphan_limit`, the worker is told to end itself, and comes back without it.
void Island::OnOrphans(Time now) {
  for (const Orphans::Overdue& orphan : state_.orphans.Look(FirstLaunches(state_), now)) {
    const uint32_t worker = state_.fleet.WorkerOf(orphan.device);
    if (!state_.fleet.NoteToldToEnd(worker, orphan.launch->ordinal)) continue;
    // Its own message comes back as the reason of its loss.
    wire::Failure why = wire::MakeFailure(
        absl::StatusCode::kUnavailable,
        absl::StrCat(OwnerText(*orphan.launch),
                     ", which nothing waits for any more, has held device ",
                     state_.fleet.IdOf(orphan.device), " for ", View::ToMs(orphan.held),
                     " ms, and the device runtime cannot end it"));
    why.set_gang(orphan.launch->ordinal.number());
    state_.outbox.Notice(
        absl::StrCat(state_.fleet.NameOf(worker), " is told to end: ", why.message()));
    wire::IslandItem item;
    *item.mutable_end_worker() = std::move(why);
    state_.outbox.Send(worker, std::move(item));
  }
}

void Island::MendBooks() {
  for (const auto& [session, found] : state_.books.TakeBroken()) {
    Ledger::DeviceBytes books(state_.fleet.device_count(), 0);
    state_.storages.Count(session, books);
    state_.nodes.Count(session, books);
    state_.books.SetRight(session, std::move(books));
    wire::Report report;
    wire::BrokenBooks& broken = *report.mutable_broken_books();
    broken.set_session(session.number());
    *broken.mutable_failure() = wire::MakeFailure(
        absl::StatusCode::kInternal,
        absl::StrCat("the scheduler of island ", state_.config.island,
                     " found the memory sums of session ", session, " broken: a release of ",
                     found.bytes, " bytes on device ", state_.fleet.IdOf(found.device),
                     ", of which its books held ", found.held_bytes, "; so it ends that session"),
        "This is a bug of Gangway: report it with the head's log. Other sessions "
        "go on; connect again.");
    state_.outbox.Notice(broken.failure().message());
    state_.outbox.Report(std::move(report));
  }
}

}  // namespace gangway::scheduler
