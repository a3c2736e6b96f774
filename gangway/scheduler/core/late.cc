// Implementation of late.h.
#include "gangway/scheduler/core/late.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/late_text.h"
#include "gangway/scheduler/core/launches.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

constexpr int kLateMax = 16;                       // of one gang: groups of devices of one worker
constexpr std::chrono::milliseconds kWaits{1000};  // shorter waits are usual

using wire::GangMember;
using Stage = GangMember::Stage;
using LateMembers = wire::Wait::LateMembers;

bool IsSame(const LateMembers& a, const LateMembers& b) {
  return a.worker() == b.worker() && a.cause() == b.cause() && a.for_gang() == b.for_gang() &&
         a.client() == b.client();
}

bool WaitsInCollective(const Member* member) {
  return member != nullptr && member->stage == GangMember::STAGE_COLLECTIVE;
}

// Which members of one gang are late, and why.
class Lateness {
 public:
  Lateness(const View& view, const NodeState& gang)
      : view_(view), island_(view.island), fleet_(view.island.fleet), gang_(gang) {}

  const Member* FirstWaiting() const;
  void AddLate(wire::Wait& wait) const;

 private:
  const Member* Find(IslandDevice device) const { return island_.members.Find(gang_, device); }
  Stage StageOf(IslandDevice device) const { return island_.members.StageOf(gang_, device); }
  std::vector<bool> Awaited() const;
  bool IsLate(IslandDevice device, bool is_awaited) const;
  void Explain(IslandDevice device, const std::vector<const NodeState*>& ahead,
               LateMembers& late) const;
  void SetForGang(LateMembers::Cause cause, Ordinal gang, LateMembers& late) const;
  Ordinal OpenProducer(IslandDevice device) const;

  const View& view_;
  const IslandState& island_;
  const Fleet& fleet_;
  const NodeState& gang_;
};

// The member that has waited longest for one which does not wait itself: the others wait for its collective, too, or
// for a later one. Null: no member waits for long.
const Member* Lateness::FirstWaiting() const {
  const Member* first = nullptr;
  bool first_awaits_active = false;
  for (IslandDevice device : gang_.devices()) {
    const Member* member = Find(device);
    if (!WaitsInCollective(member) || view_.now - member->since < kWaits) continue;
    const bool awaits_active =
        !member->awaited || StageOf(*member->awaited) != GangMember::STAGE_COLLECTIVE;
    if (first != nullptr &&
        (first_awaits_active > awaits_active ||
         (first_awaits_active == awaits_active && first->since <= member->since)))
      continue;
    first = member;
    first_awaits_active = awaits_active;
  }
  return first;
}

// By device: whether a member waits for that of the device.
std::vector<bool> Lateness::Awaited() const {
  std::vector<bool> awaited(fleet_.device_count());
  for (IslandDevice device : gang_.devices()) {
    const Member* member = Find(device);
    if (WaitsInCollective(member) && member->awaited) awaited[member->awaited->number()] = true;
  }
  return awaited;
}

// Whether others wait for the member, or it has not begun: one that only computes is not late unless it is awaited.
bool Lateness::IsLate(IslandDevice device, bool is_awaited) const {
  const uint32_t worker = fleet_.WorkerOf(device);
  if (!gang_.is_open_on(worker)) return !fleet_.IsUp(worker);
  if (view_.IsSilent(worker)) return true;
  switch (StageOf(device)) {
    case GangMember::STAGE_COLLECTIVE:
    case GangMember::STAGE_ENDED:
      return false;
    case GangMember::STAGE_UNKNOWN:
    case GangMember::STAGE_CALL:
    case GangMember::STAGE_RUNNING:
      return is_awaited || fleet_.FindStuck(device) != nullptr;
    default:
      return true;
  }
}

void Lateness::AddLate(wire::Wait& wait) const {
  const std::vector<bool> awaited = Awaited();
  const std::vector<const NodeState*> ahead = LaunchesAhead(island_.nodes, gang_);
  for (IslandDevice device : gang_.devices()) {
    if (!IsLate(device, awaited[device.number()])) {
      const bool waits = StageOf(device) == GangMember::STAGE_COLLECTIVE;
      wait.set_members_waiting(wait.members_waiting() + (waits ? 1 : 0));
      continue;
    }
    LateMembers late;
    Explain(device, ahead, late);
    auto same = std::ranges::find_if(*wait.mutable_late(),
                                     [&late](const auto& other) { return IsSame(late, other); });
    if (same != wait.mutable_late()->end()) {
      same->add_devices(fleet_.IdOf(device).number());
    } else if (wait.late_size() < kLateMax) {
      late.add_devices(fleet_.IdOf(device).number());
      if (std::ranges::find(wait.workers(), late.worker()) == wait.workers().end())
        wait.add_workers(late.worker());
      *wait.add_late() = std::move(late);
    } else {
      wait.set_late_left_out(wait.late_left_out() + 1);
    }
  }
  for (const LateMembers& late : wait.late()) {
    if (wait.for_gang() == 0 && Ordinal(late.for_gang()) != gang_.ordinal)
      wait.set_for_gang(late.for_gang());
  }
}

void Lateness::Explain(IslandDevice device, const std::vector<const NodeState*>& ahead,
                       LateMembers& late) const {
  const uint32_t worker = fleet_.WorkerOf(device);
  late.set_worker(fleet_.NameOf(worker));
  if (!fleet_.IsUp(worker)) return late.set_cause(LateMembers::CAUSE_DOWN);
  if (view_.IsSilent(worker)) {
    late.set_for_ms(view_.MsSince(view_.heard[worker]));
    return late.set_cause(LateMembers::CAUSE_SILENT);
  }
  const Stage stage = StageOf(device);
  if (stage == GangMember::STAGE_CALLBACK) {
    late.set_client(Find(device)->client);
    return late.set_cause(LateMembers::CAUSE_CALLBACK);
  }
  if (const Fleet::Stuck* stuck = fleet_.FindStuck(device)) {
    late.set_for_ms(view_.MsSince(stuck->since));
    return SetForGang(LateMembers::CAUSE_STUCK, stuck->gang, late);
  }
  if (const Ordinal producer = OpenProducer(device); producer != Ordinal())
    return SetForGang(LateMembers::CAUSE_INPUT, producer, late);
  if (stage == GangMember::STAGE_INPUT) return late.set_cause(LateMembers::CAUSE_INPUT);
  const bool waits = stage == GangMember::STAGE_QUEUED || stage == GangMember::STAGE_ENQUEUED;
  if (waits) {
    const auto runs = std::ranges::find_if(
        ahead, [&](const NodeState* other) { return island_.members.IsOpenOn(*other, device); });
    if (runs != ahead.end())
      return SetForGang(LateMembers::CAUSE_BEHIND_GANG, (*runs)->ordinal, late);
  }
  late.set_cause(stage == GangMember::STAGE_QUEUED || stage == GangMember::STAGE_PROGRAM
                     ? LateMembers::CAUSE_NOT_ENQUEUED
                     : LateMembers::CAUSE_EXECUTING);
}

void Lateness::SetForGang(LateMembers::Cause cause, Ordinal gang, LateMembers& late) const {
  late.set_cause(cause);
  late.set_for_gang(gang.number());
  const NodeState* node = island_.nodes.Find(gang);
  if (node == nullptr) return;
  late.set_for_session(node->session.number());
  if (node->program == nullptr) return;
  late.set_for_program(node->program->name);
  late.set_for_source(node->program->source);
}

// The node that is still to write an input of the gang on the device; 0: none is known.
Ordinal Lateness::OpenProducer(IslandDevice device) const {
  for (StorageId id : gang_.reads) {
    const NodeState* producer = island_.nodes.Find(island_.storages.ProducerOf(id));
    if (producer != nullptr && island_.members.IsOpenOn(*producer, device))
      return producer->ordinal;
  }
  return {};
}

}  // namespace

bool ExplainLate(const View& view, const NodeState& gang, wire::Wait& wait) {
  const Lateness lateness(view, gang);
  const Member* first = lateness.FirstWaiting();
  if (first == nullptr) return false;
  wait.set_reason(wire::Wait::REASON_COLLECTIVE);
  wait.set_collective(first->collective);
  wait.set_waited_ms(view.MsSince(first->since));
  wait.set_limit_ms(View::ToMs(view.island.config.collective_limit));
  wait.set_members(static_cast<uint32_t>(gang.devices().size()));
  lateness.AddLate(wait);
  return true;
}

std::optional<std::string> LateNotice(const View& view, const NodeState& gang) {
  wire::Wait wait;
  if (!ExplainLate(view, gang, wait)) return std::nullopt;
  return absl::StrCat(
      "gang ", gang.ordinal,
      gang.program == nullptr ? "" : absl::StrCat(" (", wire::ToText(*gang.program), ")"),
      " of session ", gang.session, " has stood for ", SecondsText(wait.waited_ms()), " in ",
      CollectiveText(wait), ". See `gangway why gang ", gang.ordinal, "`");
}

std::optional<wire::Failure> LateFailure(const View& view, const NodeState& gang) {
  wire::Wait wait;
  if (!ExplainLate(view, gang, wait)) return std::nullopt;
  wire::Failure failure = wire::MakeFailure(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("members of the gang have stood for ",
                   view.island.config.collective_limit.count(), " ms in ", CollectiveText(wait)),
      "If that takes so long by intent, raise --collective-limit.");
  wire::SetProgram(gang.program, failure);
  failure.set_gang(gang.ordinal.number());
  if (wait.late_size() > 0) failure.set_worker(wait.late(0).worker());
  wire::Clip(failure);
  return failure;
}

}  // namespace gangway::scheduler
