// Workers that start, beat, are lost, and return with a new incarnation.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/scheduler/core/late.h"
#include "gangway/scheduler/core/launches.h"
#include "gangway/scheduler/core/view.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::OnWorkerUp(WorkerUp& event, Time now) {
  const uint32_t index = event.registration.index();
  if (index >= state_.fleet.worker_count()) return;  // the service rejects such a registration
  if (state_.fleet.IsUp(index)) {
    OnWorkerDown(
        {index, state_.fleet.IncarnationOf(index),
         wire::MakeFailure(absl::StatusCode::kUnavailable, "replaced by a newer incarnation")});
  }
  state_.fleet.Start(event.registration, event.process_id);
  state_.members.Clear(index);
  wire::IslandItem open;
  open.mutable_open_devices()->set_island_epoch(state_.fleet.epoch());
  for (DeviceId id : state_.fleet.DevicesOf(index)) {
    open.mutable_open_devices()->add_devices(id.number());
    state_.books.SetOwnBudget(*state_.fleet.Find(id), event.registration.device_bytes());
  }
  state_.outbox.Send(index, std::move(open));
  for (SessionId session : state_.fleet.AdmittedTo(index)) {
    wire::IslandItem item;
    item.mutable_admit_session()->set_index(index);
    item.mutable_admit_session()->set_session(session.number());
    state_.outbox.Send(index, std::move(item));
  }
  state_.executables.LoadAllOn(index);
  lifecycle_.ResumeHeldBack(now);
  state_.outbox.Report(state_.fleet.ReportUp(index));
}

void Island::OnWorkerDown(const WorkerDown& event) {
  if (!state_.fleet.IsUp(event.worker, event.incarnation)) return;
  state_.fleet.Stop(event.worker);
  state_.members.Clear(event.worker);
  const std::vector<const NodeState*> launches =
      event.crashed ? LaunchesOn(state_.nodes, event.worker) : std::vector<const NodeState*>();
  wire::Failure lost = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat("the worker that held this array is gone: ", event.why.message(),
                   LaunchesText(launches)),
      "Make the array again, from a checkpoint if need be; the worker is restarted by its "
      "supervisor.");
  lost.set_worker(state_.fleet.NameOf(event.worker));
  lost.set_incarnation(event.incarnation.number());
  wire::Clip(lost);
  const wire::FailureRef shared = wire::Share(lost);
  state_.storages.NoteLoss(shared);
  wire::Report report;
  wire::WorkerState* state = report.mutable_worker_state();
  state->set_up(false);
  *state->mutable_failure() = lost;
  state->mutable_worker()->set_island(state_.config.island);
  state->mutable_worker()->set_index(event.worker);
  state->mutable_worker()->set_incarnation(event.incarnation.number());
  for (DeviceId id : state_.fleet.DevicesOf(event.worker))
    state->mutable_worker()->add_devices(id.number());
  for (const NodeState* launch : launches) state->add_gangs(launch->ordinal.number());
  if (const auto gang = state_.fleet.ToldToEndFor(event.worker))
    state->set_ended_for(gang->number());
  state_.outbox.Report(std::move(report));  // before the node ends that it causes
  lifecycle_.LoseWorker(event.worker, lost);
  state_.introductions.NoteDown(event.worker);  // after the others know why their gangs have failed
  // After the node ends, which settle the memory that donation saved.
  state_.storages.Lose(event.worker, shared, state_.held_back.nodes());
  state_.held_back.LookAgain();
}

// Reports each device once when it is stuck and once when it resumes.
void Island::OnWorkerBeat(const WorkerBeat& event, Time now) {
  if (!state_.fleet.IsUp(event.worker, event.incarnation)) return;
  const auto& ids = state_.fleet.DevicesOf(event.worker);
  std::vector<Fleet::Stuck> stuck;
  for (const wire::StuckDevice& each : event.beat.stuck()) {
    if (each.device() >= ids.size()) continue;
    const auto duration = std::chrono::milliseconds(std::min<uint64_t>(each.for_ms(), 1u << 30));
    stuck.push_back({ids[each.device()], Ordinal(each.gang()), now - duration});
  }
  std::vector<Fleet::Stuck> over = state_.fleet.SetStuck(event.worker, stuck);
  bool changed = false;
  for (const Fleet::Stuck& each : stuck) {
    const size_t known = std::erase_if(over, [&each](const Fleet::Stuck& old) {
      return old.device == each.device && old.gang == each.gang;
    });
    if (known == 0) NoticeStuck(event.worker, each);
    changed |= known == 0;
  }
  for (const Fleet::Stuck& each : over) {
    state_.outbox.Notice(absl::StrCat("device ", each.device, " of ",
                                      state_.fleet.NameOf(event.worker), " resumed after gang ",
                                      each.gang));
  }
  if (changed || !over.empty()) state_.outbox.Report(state_.fleet.ReportUp(event.worker));
  OnMembers(event, now);
  OnCallbackHolds(event, now);
}

void Island::NoticeStuck(uint32_t worker, const Fleet::Stuck& stuck) {
  const NodeState* node = state_.nodes.Find(stuck.gang);
  state_.outbox.Notice(absl::StrCat(
      "device ", stuck.device, " of ", state_.fleet.NameOf(worker), " is stuck in gang ",
      stuck.gang,
      node != nullptr && node->program != nullptr
          ? absl::StrCat(" (", wire::ToText(*node->program), ")")
          : "",
      node != nullptr ? absl::StrCat(" of session ", node->session) : "",
      ": the device runtime has not returned from it, although the worker's heartbeats arrive. See "
      "`gangway why gang ",
      stuck.gang, "`; if it does not resume, kill the worker (pid ", state_.fleet.ProcessOf(worker),
      "): it restarts without its arrays"));
}

// A gang that is late is logged once, and aborted when a member has waited for the limit (TM-1). Its workers end the
// waits of their members. It ends when all of them have said so: one that cannot end its members keeps what they use.
void Island::OnMembers(const WorkerBeat& event, Time now) {
  state_.members.Set(event.worker, event.beat, now);
  const View view{state_, now, event.heard};
  for (const Member& member : state_.members.On(event.worker)) {
    if (member.stage != wire::GangMember::STAGE_COLLECTIVE) continue;
    NodeState* gang = state_.nodes.Find(member.gang);
    LaunchPart* launch = gang == nullptr || gang->failure ? nullptr : gang->launch();
    if (launch == nullptr) continue;
    if (now - member.since >= state_.config.late_after && !std::exchange(launch->said_late, true)) {
      if (auto notice = LateNotice(view, *gang)) state_.outbox.Notice(std::move(*notice));
    }
    if (now - member.since < state_.config.collective_limit) continue;
    if (auto failure = LateFailure(view, *gang)) {
      state_.outbox.Notice(
          absl::StrCat("gang ", gang->ordinal, " is aborted: ", failure->message()));
      lifecycle_.Abort(*gang, wire::Share(std::move(*failure)));
    }
  }
}

// A session's host callbacks may hold a device that others wait for only for a limited time.
void Island::OnCallbackHolds(const WorkerBeat& event, Time now) {
  for (const wire::HeldDevice& held : event.beat.held()) {
    const auto device = state_.fleet.DeviceOf(event.worker, held.device());
    const NodeState* node = state_.nodes.Find(Ordinal(held.gang()));
    if (!device || node == nullptr || !node->is_launch() || node->failure) continue;
    if (!state_.members.IsOpenOn(*node, *device) || !OthersWait(state_, *node, *device)) continue;
    if (state_.callback_holds.Note(node->session, now)) EndHold(*node, *device, now);
  }
}

// Fails what the session still has for the device and calls its client: one gang alone would only make room for the
// next. What the device runtime does not end is an orphan.
void Island::EndHold(const NodeState& holder, IslandDevice device, Time now) {
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("host callbacks of ", OwnerText(holder), " have held device ",
                   state_.fleet.IdOf(device), " for ", state_.config.callback_hold_max.count(),
                   " ms in which other sessions waited for it"),
      "Return from host callbacks sooner, or raise --callback-hold.");
  wire::SetProgram(holder.program, failure);
  failure.set_gang(holder.ordinal.number());
  state_.outbox.Notice(absl::StrCat("gang ", holder.ordinal, " is aborted: ", failure.message()));
  const wire::FailureRef shared = wire::Share(std::move(failure));
  const SessionId session = holder.session;
  std::vector<Ordinal> unreleased;
  for (auto& [ordinal, node] : state_.nodes.all()) {
    if (node.session != session || !node.calls_host() || node.failure) continue;
    if (!node.has_device(device)) continue;
    if (!node.released()) {
      unreleased.push_back(ordinal);
      continue;
    }
    lifecycle_.Abort(node, shared);
    state_.orphans.Add(ordinal, now);
  }
  for (Ordinal ordinal : unreleased) {
    if (state_.nodes.Find(ordinal) != nullptr) lifecycle_.FailUnreleased(ordinal, shared);
  }
}

}  // namespace gangway::scheduler
