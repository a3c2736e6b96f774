// Gangs whose positions disagree about the next collective, and so wait for one another: gang_waits.h finds them. The
// gang fails at once on all workers, and the failure names two of the collectives with a device in each.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

bool IsSameCall(const GangWaits::Wait& a, const GangWaits::Wait& b) {
  return a.collective_number == b.collective_number && a.call == b.call;
}

}  // namespace

// Null: it does not run on this worker, or has failed.
Island::NodeState* Island::FindRunning(Ordinal gang, uint32_t worker) {
  const auto found = nodes_.find(gang);
  if (found == nodes_.end()) return nullptr;
  NodeState& node = found->second;
  const bool runs = node.kind == Kind::kLaunch && node.released && !node.failure &&
                    std::ranges::binary_search(node.open_workers, worker);
  return runs ? &node : nullptr;
}

std::optional<IslandDevice> Island::DeviceOf(uint32_t worker, uint32_t device) const {
  if (worker >= workers_.size() || device >= config_.workers[worker].devices.size())
    return std::nullopt;
  return device_index_.at(config_.workers[worker].devices[device]);
}

void Island::OnGangWaits(uint32_t worker, wire::GangWaits& report, Actions& actions) {
  const NodeState* const node = FindRunning(Ordinal(report.gang()), worker);
  if (node == nullptr) return;
  GangWaits& waits = gang_waits_[node->ordinal];
  for (wire::MemberWait& each : *report.mutable_waits()) {
    const auto device = DeviceOf(worker, each.device());
    const auto awaited = DeviceOf(each.awaited_worker(), each.awaited_device());
    if (!device || !awaited || !std::ranges::binary_search(node->devices, *device)) continue;
    GangWaits::Wait wait{.device = *device,
                         .number = each.wait(),
                         .awaited = *awaited,
                         .collective = std::move(*each.mutable_collective()),
                         .collective_number = each.number(),
                         .call = each.call()};
    wire::ClipText(wait.collective, wire::kNameMax);
    if (each.has_deed()) wait.deed = std::move(*each.mutable_deed());
    const GangWaits::Ring ring = waits.Note(std::move(wait), ++wait_checks_);
    if (!ring.empty()) Ask(node->ordinal, ring, actions);
  }
}

// Each worker once.
void Island::Ask(Ordinal gang, const GangWaits::Ring& ring, Actions& actions) {
  std::map<uint32_t, wire::IslandItem> asked;
  for (size_t i = 0; i < ring.size(); ++i) {
    const GangWaits::Wait& wait = ring[i];
    const GangWaits::Wait& before = ring[(i + ring.size() - 1) % ring.size()];
    const uint32_t worker = StateOf(wait.device).worker;
    wire::WaitCheck& check = *asked[worker].mutable_wait_check();
    check.set_gang(gang.number());
    check.set_check(wait_checks_);
    wire::WaitQuestion& question = *check.add_questions();
    question.set_device(LocalIndex(wait.device));
    question.set_wait(wait.number);
    if (!before.deed) continue;
    *question.mutable_deed() = *before.deed;
    question.set_for_worker(StateOf(before.device).worker);
    question.set_for_device(LocalIndex(before.device));
  }
  for (auto& [worker, item] : asked) SendToWorkers({worker}, std::move(item), actions);
}

void Island::OnWaitHeld(uint32_t worker, const wire::WaitHeld& held, Actions& actions) {
  NodeState* const node = FindRunning(Ordinal(held.gang()), worker);
  const auto waits = gang_waits_.find(Ordinal(held.gang()));
  const auto device = DeviceOf(worker, held.device());
  if (node == nullptr || waits == gang_waits_.end() || !device) return;
  const GangWaits::Ring ring = waits->second.Confirm(held.check(), *device);
  if (!ring.empty()) EndDeadlock(*node, ring, actions);
}

void Island::EndDeadlock(NodeState& node, const GangWaits::Ring& ring, Actions& actions) {
  const auto differs = std::ranges::adjacent_find(
      ring, [](const auto& a, const auto& b) { return !IsSameCall(a, b); });
  const bool disagree = differs != ring.end();
  const GangWaits::Wait& one = disagree ? *differs : ring[0];
  const GangWaits::Wait& other = disagree ? differs[1] : ring[ring.size() - 1];
  const auto member = [&](const GangWaits::Wait& wait) {
    const DeviceState& device = StateOf(wait.device);
    const std::string call = one.collective_number == other.collective_number
                                 ? absl::StrCat(" (call ", uint64_t{wait.call} + 1, ")")
                                 : "";
    return absl::StrCat("device ", device.id, " of ", WorkerName(device.worker), " waits in ",
                        wait.collective, call);
  };
  wire::Failure failure = wire::MakeFailure(
      disagree ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal,
      absl::StrCat("positions of the program wait for one another in ",
                   disagree ? "different collectives" : "one collective",
                   ", which would never end: ", member(one), ", and ", member(other)),
      disagree ? "All positions must run the same collectives in one order: none of them may "
                 "decide alone about a branch or a loop that has collectives."
               : "This is a defect of Gangway: please report the program.");
  wire::SetProgram(node.program, failure);
  failure.set_gang(node.ordinal.number());
  wire::Clip(failure);
  actions.notices.push_back(
      absl::StrCat("gang ", node.ordinal, " is aborted: ", failure.message()));
  node.failure = wire::Share(std::move(failure));
  CancelOpenWorkers(node, actions);
}

}  // namespace gangway::scheduler
