// The part of controller.h for what schedulers report, and for their ends.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/controller/core/names.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {

void Controller::OnReport(uint32_t island, wire::Report& report, Time now) {
  if (report.has_done()) {
    nodes_.OnDone(island, *report.mutable_done());
  } else if (report.has_worker_state()) {
    OnWorkerState(*report.mutable_worker_state(), now);
  } else if (report.has_released()) {
    nodes_.OnReleased(island, report.released(), fleet_);
  } else if (report.has_leaving()) {
    OnLeaving(island, report.leaving());
  } else if (report.has_broken_books()) {
    OnBrokenBooks(*report.mutable_broken_books(), now);
  } else if (report.has_ready() || report.has_admitted()) {
    nodes_.OnReady(island, report);
  }
}

// Only the session whose sums are broken ends; the scheduler or worker has put its bytes right.
void Controller::OnBrokenBooks(wire::BrokenBooks& broken, Time now) {
  const SessionId id(broken.session());
  if (!sessions_.contains(id)) return;  // it has ended already
  wire::Clip(*broken.mutable_failure());
  wire::SessionEvent event;
  *event.mutable_ended() = broken.failure();
  outbox_.ToClient(id, std::move(event));
  outbox_.actions().ended.emplace_back(id, std::move(*broken.mutable_failure()));
  OnSessionLost(id, now);
}

// The answer follows all items sent to the worker: it tells the worker that it has all its work.
void Controller::OnLeaving(uint32_t island, const wire::Leaving& leaving) {
  if (!fleet_.OnLeaving(island, leaving)) return;
  wire::IslandItem item;
  *item.mutable_leave() = leaving;
  outbox_.ToIsland(island, std::move(item));
}

void Controller::OnWorkerState(wire::WorkerState& state, Time now) {
  const std::optional<size_t> worker = fleet_.OnWorkerState(state);
  if (!worker) return;
  outbox_.actions().presence_changed = true;
  if (!state.up()) OnWorkerLost(*worker, state, now);
  state.clear_gangs();  // no client's concern
  state.clear_ended_for();
  for (const auto& [id, session] : sessions_) {
    wire::SessionEvent event;
    *event.mutable_worker_state() = state;
    outbox_.ToClient(id, std::move(event));
  }
}

void Controller::OnWorkerLost(size_t worker, const wire::WorkerState& lost, Time now) {
  const uint32_t island = lost.worker().island();
  storages_.Lose(worker, wire::Share(lost.failure()),
                 [this, island](Ordinal producer) { return nodes_.IsOpenOn(producer, island); });
  std::vector<LaunchedProgramRef> launches;
  for (const uint64_t gang : lost.gangs())
    if (auto launched = nodes_.LaunchedBy(Ordinal(gang))) launches.push_back(std::move(launched));
  for (std::string& notice : blame_.OnDeath(NameOf(lost.worker()), launches, now))
    outbox_.actions().notices.push_back(std::move(notice));
  BlameOrphan(lost, now);
}

// Where no other session was open, it cost nobody anything.
void Controller::BlameOrphan(const wire::WorkerState& lost, Time now) {
  if (!lost.has_ended_for()) return;
  // Taken, so that it counts once, also where it held devices of several workers.
  const LaunchedProgramRef program = nodes_.TakeLaunched(Ordinal(lost.ended_for()));
  if (program == nullptr) return;
  const auto is_other = [&](const auto& entry) { return entry.first != program->session; };
  if (std::ranges::none_of(sessions_, is_other)) return;
  outbox_.actions().notices.push_back(blame_.OnOrphan(NameOf(lost.worker()), *program, now));
}

// A worker that is up, before its own scheduler says so.
void Controller::LoseWorker(size_t index, const wire::Failure& why, Time now) {
  wire::WorkerState state;
  *state.mutable_worker() = fleet_.workers()[index].declared;
  *state.mutable_failure() = why;
  state.mutable_failure()->set_worker(NameOf(state.worker()));
  state.mutable_failure()->set_incarnation(state.worker().incarnation());
  OnWorkerState(state, now);
}

// Sessions that see the worker know at once that it is down, since they would send their bytes to its process.
void Controller::ReplaceWorker(size_t index, const Owner& owner, Time now) {
  const Fleet::Worker& worker = fleet_.workers()[index];
  wire::IslandItem item;
  wire::ReplaceWorker& replace = *item.mutable_replace_worker();
  replace.set_index(worker.declared.index());
  *replace.mutable_why() =
      wire::MakeFailure(absl::StatusCode::kUnavailable,
                        absl::StrCat("it is replaced, because the last session of its owner, ",
                                     owner.Text(), ", has ended"));
  const wire::Failure why = replace.why();
  outbox_.ToIsland(worker.declared.island(), std::move(item));
  if (!worker.up) return;
  LoseWorker(index, why, now);
  fleet_.NoteReplaced(index, now);
}

void Controller::OnSchedulerUp(const SchedulerUp& up) {
  if (outbox_.OnSchedulerUp(up.island, up.process_id)) outbox_.actions().presence_changed = true;
}

// All arrays of its island are lost. Its workers end too, and return with new incarnations.
void Controller::OnSchedulerDown(const SchedulerDown& down, Time now) {
  if (!outbox_.OnSchedulerDown(down.island)) return;
  outbox_.actions().presence_changed = true;
  isolation_.AdmitAgain(down.island);
  const wire::Failure lost = wire::MakeFailure(
      absl::StatusCode::kDataLoss,
      absl::StrCat(SchedulerName(down.island), ", which ordered all work of its island, ",
                   "is gone (", down.why, "), and the island's arrays with it"),
      "Make the array again, from a checkpoint if need be; the scheduler and its workers are "
      "restarted by their supervisor.");
  for (size_t i = 0; i < fleet_.workers().size(); ++i) {  // before the node ends that this causes
    const Fleet::Worker& worker = fleet_.workers()[i];
    if (worker.declared.island() == down.island && worker.up) LoseWorker(i, lost, now);
  }
  nodes_.FailIsland(down.island, lost);
}

}  // namespace gangway::controller
