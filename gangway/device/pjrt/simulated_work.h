// A custom call that only takes time: "gangway_simulated_work" maps (clock, x) to (clock, x) after
// `microseconds`. It gives pipeline benchmarks stages of a known length on few cores.
//
// Calls that pass one clock along run one after another, like the programs of a device; the thread
// that executes the program sleeps during each call. Off unless GANGWAY_SIMULATED_WORK=1 is in the
// environment of the workers and the compiler.
#ifndef GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
#define GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_

#include "gangway/device/handler_group.h"

namespace gangway::device {

// Empty unless the environment asks for it.
HandlerGroup SimulatedWorkHandlers();

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
