// Implementation of member_waits.h.
#include "gangway/worker/service/launch/member_waits.h"

#include "gangway/wire/failure.h"

namespace gangway::worker {

void DescribeWaits(const std::map<int, collective::Waiting>& collectives,
                   const std::map<int, HostCalls::Caller>& calls, Clock::time_point now,
                   std::vector<wire::GangMember>& members) {
  for (wire::GangMember& member : members) {
    const auto device = static_cast<int>(member.device());
    if (auto wait = collectives.find(device);
        wait != collectives.end() && wait->second.gang == member.gang()) {
      member.set_stage(wire::GangMember::STAGE_COLLECTIVE);
      member.set_for_ms(ElapsedMs(wait->second.since, now));
      member.set_collective(wire::ValidUtf8(wait->second.collective));
      member.set_awaited_worker(wait->second.peer);
      member.set_awaited_device(wait->second.peer_device);
    } else if (auto call = calls.find(device);
               call != calls.end() && call->second.gang.number() == member.gang()) {
      member.set_stage(wire::GangMember::STAGE_CALLBACK);
      member.set_client(wire::ValidUtf8(call->second.client));
    }
  }
}

}  // namespace gangway::worker
