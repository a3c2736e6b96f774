// Gangs whose members wait for others in a collective of Gangway's own: which members are missing, and why. Workers say
// in their heartbeats what each device does for a gang; this file adds what only the scheduler knows: which workers are
// silent or dead, which gang comes first on a device, and which node produces an input. A gang that is late is logged
// once, and aborted when a member has waited for the limit (TM-1).
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "gangway/base/shown_name.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/late_text.h"

namespace gangway::scheduler {
namespace {

constexpr int kMissingMax = 16;  // of one gang: groups of devices of one worker
constexpr uint64_t kForMsMax = 1u << 30;
constexpr std::chrono::milliseconds kWaits{1000};  // shorter waits are usual
constexpr size_t kMembersMax = 1024;               // that one heartbeat may name

using wire::GangMember;
using Stage = GangMember::Stage;
using Missing = wire::Wait::Missing;

bool IsSame(const Missing& a, const Missing& b) {
  return a.worker() == b.worker() && a.cause() == b.cause() && a.for_gang() == b.for_gang() &&
         a.client() == b.client();
}

template <typename List, typename Value>
bool Contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::optional<uint32_t> Island::WorkerOf(std::string_view name) const {
  uint32_t index = 0;
  absl::string_view left(name.data(), name.size());
  const bool is_one =
      absl::ConsumePrefix(&left, absl::StrCat("island", config_.island, "/worker")) &&
      absl::SimpleAtoi(left, &index) && index < workers_.size();
  return is_one ? std::optional<uint32_t>(index) : std::nullopt;
}

void Island::OnMembers(const WorkerBeat& event, Time now, Actions& actions) {
  WorkerState& worker = workers_[event.worker];
  worker.members.clear();
  const auto& ids = config_.workers[event.worker].devices;
  for (const wire::GangMember& each : event.beat.members()) {
    if (each.device() >= ids.size() || worker.members.size() >= kMembersMax) continue;
    Member member{.device = device_index_.at(ids[each.device()]),
                  .gang = Ordinal(each.gang()),
                  .stage = each.stage(),
                  .since = now - std::chrono::milliseconds(std::min(kForMsMax, each.for_ms()))};
    member.client = ShownName(each.client());
    member.collective = ShownName(each.collective(), wire::kNameMax);
    if (const auto other = WorkerOf(each.awaited_worker())) {
      const auto& theirs = config_.workers[*other].devices;
      if (each.awaited_device() < theirs.size())
        member.awaited = device_index_.at(theirs[each.awaited_device()]);
    }
    worker.members.push_back(std::move(member));
  }
  for (const Member& member : worker.members) {
    if (member.stage != GangMember::STAGE_COLLECTIVE) continue;
    auto node = nodes_.find(member.gang);
    if (node == nodes_.end() || node->second.failure) continue;
    if (now - member.since >= config_.late_after) NoticeLate(node->second, now, event, actions);
    if (now - member.since >= config_.collective_limit) EndLate(node->second, now, event, actions);
  }
}

void Island::NoticeLate(NodeState& node, Time now, const WorkerBeat& event, Actions& actions) {
  wire::Wait wait;
  if (std::exchange(node.said_late, true) || !ExplainLate(node, now, event.heard, wait)) return;
  actions.notices.push_back(absl::StrCat(
      "gang ", node.ordinal,
      node.program == nullptr ? "" : absl::StrCat(" (", wire::ToText(*node.program), ")"),
      " of session ", node.session, " has stood for ", wire::SecondsText(wait.waited_ms()), " in ",
      wire::CollectiveText(wait), ". See `gangway why gang ", node.ordinal, "`"));
}

// The workers end the waits of their members. The gang ends when all of them have said so: one that cannot end its
// members keeps what they use.
void Island::EndLate(NodeState& node, Time now, const WorkerBeat& event, Actions& actions) {
  wire::Wait wait;
  if (!ExplainLate(node, now, event.heard, wait)) return;
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("members of the gang have stood for ", config_.collective_limit.count(),
                   " ms in ", wire::CollectiveText(wait)),
      "If that takes so long by intent, raise --collective-limit.");
  wire::SetProgram(node.program, failure);
  failure.set_gang(node.ordinal.number());
  if (wait.missing_size() > 0) failure.set_worker(wait.missing(0).worker());
  wire::Clip(failure);
  actions.notices.push_back(
      absl::StrCat("gang ", node.ordinal, " is aborted: ", failure.message()));
  node.failure = wire::Share(std::move(failure));
  CancelOpenWorkers(node, actions);
}

const Island::Member* Island::FindMember(const NodeState& node, IslandDevice device) const {
  for (const Member& member : workers_[StateOf(device).worker].members)
    if (member.gang == node.ordinal && member.device == device) return &member;
  return nullptr;
}

Stage Island::MemberStage(const NodeState& node, IslandDevice device) const {
  const Member* member = FindMember(node, device);
  return member == nullptr ? GangMember::STAGE_UNKNOWN : member->stage;
}

const Island::WorkerState::Stuck* Island::FindStuck(IslandDevice device) const {
  for (const WorkerState::Stuck& stuck : workers_[StateOf(device).worker].stuck)
    if (stuck.device == StateOf(device).id) return &stuck;
  return nullptr;
}

// The member that has waited longest for one that does not wait itself: the others wait for its collective, too, or for
// a later one. Null: no member waits for long.
const Island::Member* Island::FirstWaiting(const NodeState& node, Time now) const {
  const Member* first = nullptr;
  bool leads = false;
  for (IslandDevice device : node.devices) {
    const Member* member = FindMember(node, device);
    if (member == nullptr || member->stage != GangMember::STAGE_COLLECTIVE) continue;
    if (now - member->since < kWaits) continue;
    const bool is_end =
        !member->awaited || MemberStage(node, *member->awaited) != GangMember::STAGE_COLLECTIVE;
    if (first != nullptr && (leads > is_end || (leads == is_end && first->since <= member->since)))
      continue;
    first = member;
    leads = is_end;
  }
  return first;
}

// By device: whether a member waits for that of the device.
std::vector<bool> Island::Awaited(const NodeState& node) const {
  std::vector<bool> awaited(devices_.size());
  for (IslandDevice device : node.devices) {
    const Member* member = FindMember(node, device);
    if (member != nullptr && member->stage == GangMember::STAGE_COLLECTIVE && member->awaited)
      awaited[member->awaited->number()] = true;
  }
  return awaited;
}

// Whether others wait for the member, or it has not begun: one that only computes is not missing unless it is awaited.
bool Island::IsMissing(const NodeState& node, IslandDevice device, bool is_awaited, Time now,
                       const std::vector<Time>& heard) const {
  const uint32_t worker = StateOf(device).worker;
  if (!std::ranges::binary_search(node.open_workers, worker))
    return workers_[worker].incarnation == Incarnation();
  if (IsSilent(worker, now, heard)) return true;
  switch (MemberStage(node, device)) {
    case GangMember::STAGE_COLLECTIVE:
    case GangMember::STAGE_ENDED:
      return false;
    case GangMember::STAGE_UNKNOWN:
    case GangMember::STAGE_CALL:
    case GangMember::STAGE_RUNNING:
      return is_awaited || FindStuck(device) != nullptr;
    default:
      return true;
  }
}

bool Island::ExplainLate(const NodeState& node, Time now, const std::vector<Time>& heard,
                         wire::Wait& wait) const {
  const Member* first = FirstWaiting(node, now);
  if (first == nullptr) return false;
  wait.set_reason(wire::Wait::REASON_COLLECTIVE);
  wait.set_collective(first->collective);
  wait.set_waited_ms(Ms(now - first->since));
  wait.set_limit_ms(static_cast<uint64_t>(config_.collective_limit.count()));
  wait.set_members(static_cast<uint32_t>(node.devices.size()));
  const std::vector<bool> awaited = Awaited(node);
  const std::vector<const NodeState*> ahead = LaunchesAhead(node);
  for (IslandDevice device : node.devices) {
    if (!IsMissing(node, device, awaited[device.number()], now, heard)) {
      const bool waits = MemberStage(node, device) == GangMember::STAGE_COLLECTIVE;
      wait.set_members_waiting(wait.members_waiting() + (waits ? 1 : 0));
      continue;
    }
    Missing missing;
    ExplainMissing(node, device, now, heard, ahead, missing);
    auto same = std::find_if(wait.mutable_missing()->begin(), wait.mutable_missing()->end(),
                             [&missing](const auto& other) { return IsSame(missing, other); });
    if (same != wait.mutable_missing()->end()) {
      same->add_devices(StateOf(device).id.number());
    } else if (wait.missing_size() < kMissingMax) {
      missing.add_devices(StateOf(device).id.number());
      if (!Contains(wait.workers(), missing.worker())) wait.add_workers(missing.worker());
      *wait.add_missing() = std::move(missing);
    } else {
      wait.set_missing_left_out(wait.missing_left_out() + 1);
    }
  }
  for (const Missing& missing : wait.missing()) {
    if (wait.for_gang() == 0 && Ordinal(missing.for_gang()) != node.ordinal)
      wait.set_for_gang(missing.for_gang());
  }
  return true;
}

void Island::ExplainMissing(const NodeState& node, IslandDevice device, Time now,
                            const std::vector<Time>& heard,
                            const std::vector<const NodeState*>& ahead, Missing& missing) const {
  const uint32_t worker = StateOf(device).worker;
  missing.set_worker(WorkerName(worker));
  if (workers_[worker].incarnation == Incarnation()) return missing.set_cause(Missing::CAUSE_DOWN);
  if (IsSilent(worker, now, heard)) {
    missing.set_for_ms(Ms(now - heard[worker]));
    return missing.set_cause(Missing::CAUSE_SILENT);
  }
  const Stage stage = MemberStage(node, device);
  if (stage == GangMember::STAGE_CALLBACK) {
    missing.set_client(FindMember(node, device)->client);
    return missing.set_cause(Missing::CAUSE_CALLBACK);
  }
  if (const WorkerState::Stuck* stuck = FindStuck(device)) {
    missing.set_for_ms(Ms(now - stuck->since));
    return SetForGang(Missing::CAUSE_STUCK, stuck->gang, missing);
  }
  if (const Ordinal producer = OpenProducer(node, device); producer != Ordinal())
    return SetForGang(Missing::CAUSE_INPUT, producer, missing);
  if (stage == GangMember::STAGE_INPUT) return missing.set_cause(Missing::CAUSE_INPUT);
  const bool waits = stage == GangMember::STAGE_QUEUED || stage == GangMember::STAGE_ENQUEUED;
  if (waits) {
    const auto runs = std::ranges::find_if(
        ahead, [&](const NodeState* other) { return IsOpenOn(*other, device); });
    if (runs != ahead.end())
      return SetForGang(Missing::CAUSE_BEHIND_GANG, (*runs)->ordinal, missing);
  }
  missing.set_cause(stage == GangMember::STAGE_QUEUED || stage == GangMember::STAGE_PROGRAM
                        ? Missing::CAUSE_NOT_ENQUEUED
                        : Missing::CAUSE_EXECUTING);
}

void Island::SetForGang(Missing::Cause cause, Ordinal gang, Missing& missing) const {
  missing.set_cause(cause);
  missing.set_for_gang(gang.number());
  auto found = nodes_.find(gang);
  if (found == nodes_.end()) return;
  missing.set_for_session(found->second.session.number());
  if (found->second.program == nullptr) return;
  missing.set_for_program(found->second.program->name);
  missing.set_for_source(found->second.program->source);
}

// The node that is still to write an input of `node` on the device; 0: none is known.
Ordinal Island::OpenProducer(const NodeState& node, IslandDevice device) const {
  for (StorageId id : node.reads) {
    auto storage = storages_.find(id);
    if (storage == storages_.end()) continue;
    auto producer = nodes_.find(storage->second.producer);
    if (producer != nodes_.end() && IsOpenOn(producer->second, device)) return producer->first;
  }
  return {};
}

// The gangs before `node` in the island's order, the earliest first: on a device, the first that has not ended runs.
std::vector<const Island::NodeState*> Island::LaunchesAhead(const NodeState& node) const {
  std::vector<const NodeState*> ahead;
  for (const auto& [ordinal, other] : nodes_)
    if (other.kind == Kind::kLaunch && other.released && other.place < node.place)
      ahead.push_back(&other);
  std::ranges::sort(ahead, {}, &NodeState::place);
  return ahead;
}

bool Island::IsOpenOn(const NodeState& node, IslandDevice device) const {
  if (!std::ranges::binary_search(node.devices, device) ||
      !std::ranges::binary_search(node.open_workers, StateOf(device).worker))
    return false;
  return MemberStage(node, device) != GangMember::STAGE_ENDED;
}

}  // namespace gangway::scheduler
