// Gangs whose members wait for others in a collective of Gangway's own: which members are late, and why. Workers say
// in their heartbeats what each device does for a gang (members.h); this adds what only the scheduler knows: which
// workers are silent or dead, which gang comes first on a device, and which node produces an input. Only looks.
#ifndef GANGWAY_SCHEDULER_CORE_LATE_H_
#define GANGWAY_SCHEDULER_CORE_LATE_H_

#include <optional>
#include <string>

#include "gangway/scheduler/core/node.h"
#include "gangway/scheduler/core/view.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

// False, and `wait` stays as it is: no member of the gang is known to wait for long.
bool ExplainLate(const View& view, const NodeState& gang, wire::Wait& wait);

// The line of the log that says so; nullopt: likewise.
std::optional<std::string> LateNotice(const View& view, const NodeState& gang);

// Why the gang is aborted, if its members have waited for the limit; nullopt: likewise.
std::optional<wire::Failure> LateFailure(const View& view, const NodeState& gang);

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LATE_H_
