// Implementation of deadlocks.h.
#include "gangway/scheduler/core/deadlocks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::scheduler {
namespace {

bool IsSameCall(const GangWaits::Wait& a, const GangWaits::Wait& b) {
  return a.collective_number == b.collective_number && a.call == b.call;
}

}  // namespace

void Deadlocks::NoteWaits(const NodeState& gang, uint32_t worker, wire::GangWaits& report) {
  GangWaits& waits = waits_[gang.ordinal];
  for (wire::MemberWait& each : *report.mutable_waits()) {
    const auto device = fleet_.DeviceOf(worker, each.device());
    const auto awaited = fleet_.DeviceOf(each.awaited_worker(), each.awaited_device());
    if (!device || !awaited || !gang.has_device(*device)) continue;
    GangWaits::Wait wait{.device = *device,
                         .number = each.wait(),
                         .awaited = *awaited,
                         .collective = std::move(*each.mutable_collective()),
                         .collective_number = each.number(),
                         .call = each.call()};
    wire::ClipText(wait.collective, wire::kNameMax);
    if (each.has_deed()) wait.deed = std::move(*each.mutable_deed());
    const GangWaits::Ring ring = waits.Note(std::move(wait), ++checks_);
    if (!ring.empty()) Ask(gang.ordinal, ring);
  }
}

// Each worker once.
void Deadlocks::Ask(Ordinal gang, const GangWaits::Ring& ring) {
  std::map<uint32_t, wire::IslandItem> asked;
  for (size_t i = 0; i < ring.size(); ++i) {
    const GangWaits::Wait& wait = ring[i];
    const GangWaits::Wait& before = ring[(i + ring.size() - 1) % ring.size()];
    wire::WaitCheck& check = *asked[fleet_.WorkerOf(wait.device)].mutable_wait_check();
    check.set_gang(gang.number());
    check.set_check(checks_);
    wire::WaitQuestion& question = *check.add_questions();
    question.set_device(fleet_.IndexOnWorker(wait.device));
    question.set_wait(wait.number);
    if (!before.deed) continue;
    *question.mutable_deed() = *before.deed;
    question.set_for_worker(fleet_.WorkerOf(before.device));
    question.set_for_device(fleet_.IndexOnWorker(before.device));
  }
  for (auto& [worker, item] : asked) outbox_.Send(worker, std::move(item));
}

wire::FailureRef Deadlocks::NoteConfirmed(const NodeState& gang, uint32_t worker,
                                          const wire::WaitConfirmed& confirmed) {
  const auto waits = waits_.find(gang.ordinal);
  const auto device = fleet_.DeviceOf(worker, confirmed.device());
  if (waits == waits_.end() || !device) return nullptr;
  const GangWaits::Ring ring = waits->second.Confirm(confirmed.check(), *device);
  return ring.empty() ? nullptr : Describe(gang, ring);
}

wire::FailureRef Deadlocks::Describe(const NodeState& gang, const GangWaits::Ring& ring) const {
  const auto differs = std::ranges::adjacent_find(
      ring, [](const auto& a, const auto& b) { return !IsSameCall(a, b); });
  const bool disagree = differs != ring.end();
  const GangWaits::Wait& one = disagree ? *differs : ring[0];
  const GangWaits::Wait& other = disagree ? differs[1] : ring[ring.size() - 1];
  const auto member = [&](const GangWaits::Wait& wait) {
    const std::string call = one.collective_number == other.collective_number
                                 ? absl::StrCat(" (call ", uint64_t{wait.call} + 1, ")")
                                 : "";
    return absl::StrCat("device ", fleet_.IdOf(wait.device), " of ",
                        fleet_.NameOf(fleet_.WorkerOf(wait.device)), " waits in ", wait.collective,
                        call);
  };
  wire::Failure failure = wire::MakeFailure(
      disagree ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal,
      absl::StrCat("positions of the program wait for one another in ",
                   disagree ? "different collectives" : "one collective",
                   ", which would never end: ", member(one), ", and ", member(other)),
      disagree ? "All positions must run the same collectives in one order: none of them may "
                 "decide alone about a branch or a loop that has collectives."
               : "This is a defect of Gangway: please report the program.");
  wire::SetProgram(gang.program, failure);
  failure.set_gang(gang.ordinal.number());
  wire::Clip(failure);
  return wire::Share(std::move(failure));
}

}  // namespace gangway::scheduler
