// The words for members of a gang that others wait for in a collective. They are the same in `gangway why`, in the log
// and in the failure of a gang that waited too long. Pure functions.
#ifndef GANGWAY_WIRE_LATE_TEXT_H_
#define GANGWAY_WIRE_LATE_TEXT_H_

#include <string>

#include "gangway/wire/wire.pb.h"

namespace gangway::wire {

// "collective all-reduce.7 at train.py:57, where 3 of 4 members wait for device 2 of island0/worker1, which is silent
// (no heartbeat for 2.1 s)". Of a Wait with REASON_COLLECTIVE.
std::string CollectiveText(const Wait& wait);

// "2.1 s", from 10 s on "12 s".
std::string SecondsText(uint64_t ms);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_LATE_TEXT_H_
