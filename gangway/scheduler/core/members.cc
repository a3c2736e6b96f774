// Implementation of members.h.
#include "gangway/scheduler/core/members.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gangway/base/shown_name.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

constexpr uint64_t kForMsMax = 1u << 30;
constexpr size_t kMembersMax = 1024;  // that one heartbeat may name

}  // namespace

void Members::Set(uint32_t worker, const wire::Heartbeat& beat, Time now) {
  std::vector<Member>& members = members_[worker];
  members.clear();
  for (const wire::GangMember& each : beat.members()) {
    const auto device = fleet_.DeviceOf(worker, each.device());
    if (!device || members.size() >= kMembersMax) continue;
    Member member{.device = *device,
                  .gang = Ordinal(each.gang()),
                  .stage = each.stage(),
                  .since = now - std::chrono::milliseconds(std::min(kForMsMax, each.for_ms()))};
    member.client = ShownName(each.client());
    member.collective = ShownName(each.collective(), wire::kNameMax);
    if (const auto other = fleet_.FindName(each.awaited_worker()))
      member.awaited = fleet_.DeviceOf(*other, each.awaited_device());
    members.push_back(std::move(member));
  }
}

const Member* Members::Find(const NodeState& gang, IslandDevice device) const {
  for (const Member& member : members_[fleet_.WorkerOf(device)])
    if (member.gang == gang.ordinal && member.device == device) return &member;
  return nullptr;
}

wire::GangMember::Stage Members::StageOf(const NodeState& gang, IslandDevice device) const {
  const Member* member = Find(gang, device);
  return member == nullptr ? wire::GangMember::STAGE_UNKNOWN : member->stage;
}

bool Members::IsOpenOn(const NodeState& node, IslandDevice device) const {
  if (!node.has_device(device) || !node.is_open_on(fleet_.WorkerOf(device))) return false;
  return StageOf(node, device) != wire::GangMember::STAGE_ENDED;
}

}  // namespace gangway::scheduler
