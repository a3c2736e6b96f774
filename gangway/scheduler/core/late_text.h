// The words for late members of a gang: those that others wait for in a collective. The log, the failure of a gang that
// waited too long, and `gangway why` use the same ones. Pure functions.
#ifndef GANGWAY_SCHEDULER_CORE_LATE_TEXT_H_
#define GANGWAY_SCHEDULER_CORE_LATE_TEXT_H_

#include <string>

#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

// "collective all-reduce.7 at train.py:57, where 3 of 4 members wait for device 2 of island0/worker1, which is silent
// (no heartbeat for 2.1 s)". Of a Wait with REASON_COLLECTIVE.
std::string CollectiveText(const wire::Wait& wait);

// "2.1 s", from 10 s on "12 s".
std::string SecondsText(uint64_t ms);

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LATE_TEXT_H_
