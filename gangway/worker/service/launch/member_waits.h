// What the members of gangs wait for outside of their devices, for the heartbeats: another member, in a collective, or
// the client that a host callback called. A pure function, which any thread may call.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_MEMBER_WAITS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_MEMBER_WAITS_H_

#include <map>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/collective/execution/waiting.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/launch/host_calls.h"

namespace gangway::worker {

// Says so of those of `members` (RunningGangs::Look) that wait. `collectives` and `calls`: what waits now, by the
// device that it waits on.
void DescribeWaits(const std::map<int, collective::Waiting>& collectives,
                   const std::map<int, HostCalls::Caller>& calls, Clock::time_point now,
                   std::vector<wire::GangMember>& members);

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_MEMBER_WAITS_H_
