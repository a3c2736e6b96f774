// The custom call that stands for a collective in a lowered program. The handler finds the member by XLA's RunId, which
// is the launch id of the execute, and by the device.
//
// Threading: any thread. The handler blocks its thread of the device runtime while it waits for other members, and
// fails on a thread that serves (serving_thread.h). A program that calls it outside of a launch with members fails.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_COLLECTIVE_CALL_H_
#define GANGWAY_COLLECTIVE_EXECUTION_COLLECTIVE_CALL_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "gangway/collective/execution/member.h"
#include "gangway/device/handler_group.h"

namespace gangway::collective {

// Its attribute `number` is the collective's. The last operand and the last result are the chain.
inline constexpr std::string_view kCollectiveCallTarget = "gangway.collective";

// Of the execute with this launch id on this local device, from now on; null: no longer. Launch ids are those of one
// worker: a process that runs several must not let them execute parts of one launch that communicate.
void SetMember(int32_t launch_id, int device, std::shared_ptr<Member> member);

device::HandlerGroup CollectiveHandlers();

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_COLLECTIVE_CALL_H_
