// What workers say of nodes: that their parts have ended or failed, and what they wait for.
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {

void Island::OnReport(uint32_t worker, wire::Report& report, Time now) {
  only_parts_ended_ &= report.has_done();
  switch (report.report_case()) {
    case wire::Report::kDone:
      return OnWorkerDone(worker, *report.mutable_done());
    case wire::Report::kReleased:
      return OnWorkerEnqueued(report.released());
    case wire::Report::kFailing:
      return OnWorkerFailing(worker, *report.mutable_failing());
    case wire::Report::kGangWaits:
      return OnGangWaits(worker, *report.mutable_gang_waits());
    case wire::Report::kWaitConfirmed:
      return OnWaitConfirmed(worker, report.wait_confirmed());
    case wire::Report::kStaging:
      return OnStaging(report.staging(), now);
    case wire::Report::kUsage:
      return state_.fleet.SetDataBytes(worker, report.usage().data());
    case wire::Report::kLeaving: {
      wire::Report leaving;
      leaving.mutable_leaving()->set_index(worker);
      leaving.mutable_leaving()->set_incarnation(state_.fleet.IncarnationOf(worker).number());
      return state_.outbox.Report(std::move(leaving));
    }
    case wire::Report::kBrokenBooks:
      state_.outbox.Notice(report.broken_books().failure().message());
      return state_.outbox.Report(std::move(report));
    case wire::Report::kLoaded:
      return state_.executables.NoteFailure(worker, *report.mutable_loaded(), now);
    default:
      return;
  }
}

void Island::OnWorkerDone(uint32_t worker, wire::Done& done) {
  NodeState* node = state_.nodes.Find(Ordinal(done.ordinal()));
  if (node == nullptr) return;  // failed here already
  only_parts_ended_ &= node->released() && !done.has_failure() && node->open_workers.size() > 1;
  if (done.has_failure()) wire::Clip(*done.mutable_failure());
  if (!node->released()) {  // the worker could not even prepare it
    wire::Failure failure =
        done.has_failure()
            ? done.failure()
            : wire::MakeFailure(absl::StatusCode::kInternal,
                                "a worker reported the end of work that was never released");
    return lifecycle_.FailUnreleased(node->ordinal, wire::Share(std::move(failure)));
  }
  if (!lifecycle_.Close(worker, *node)) return;
  if (done.has_failure() && !node->failure)
    lifecycle_.FailReleased(*node, wire::Share(std::move(*done.mutable_failure())));
  lifecycle_.EndIfClosed(*node);
}

// It tells this once for each release, whatever comes of the node.
void Island::OnWorkerEnqueued(const wire::Released& released) {
  for (uint64_t number : released.ordinals()) {
    NodeState* node = state_.nodes.Find(Ordinal(number));
    if (node != nullptr && node->workers_to_enqueue > 0) lifecycle_.NoteEnqueued(*node);
  }
}

void Island::OnWorkerFailing(uint32_t worker, wire::Done& failing) {
  NodeState* node = FindRunning(Ordinal(failing.ordinal()), worker);
  if (node == nullptr || !failing.has_failure()) return;
  wire::Clip(*failing.mutable_failure());
  lifecycle_.FailReleased(*node, wire::Share(std::move(*failing.mutable_failure())));
}

// Null: it does not run on this worker, or has failed.
NodeState* Island::FindRunning(Ordinal gang, uint32_t worker) {
  NodeState* node = state_.nodes.Find(gang);
  const bool runs = node != nullptr && node->is_launch() && node->released() && !node->failure &&
                    node->is_open_on(worker);
  return runs ? node : nullptr;
}

void Island::OnGangWaits(uint32_t worker, wire::GangWaits& report) {
  const NodeState* gang = FindRunning(Ordinal(report.gang()), worker);
  if (gang != nullptr) state_.deadlocks.NoteWaits(*gang, worker, report);
}

void Island::OnWaitConfirmed(uint32_t worker, const wire::WaitConfirmed& confirmed) {
  NodeState* gang = FindRunning(Ordinal(confirmed.gang()), worker);
  if (gang == nullptr) return;
  wire::FailureRef failure = state_.deadlocks.NoteConfirmed(*gang, worker, confirmed);
  if (failure == nullptr) return;
  state_.outbox.Notice(absl::StrCat("gang ", gang->ordinal, " is aborted: ", failure->message()));
  lifecycle_.Abort(*gang, std::move(failure));
}

void Island::OnStaging(const wire::Staging& staging, Time now) {
  for (uint64_t number : staging.ordinals())
    state_.waits.Restart(WaitFor::kBytes, Ordinal(number), now);
}

}  // namespace gangway::scheduler
