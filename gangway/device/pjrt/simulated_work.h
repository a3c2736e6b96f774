// A custom call that takes time and does nothing, so that a benchmark of pipelines has stages of a
// known length on a machine with few cores: "gangway_simulated_work" maps (clock, x) to (clock, x)
// after `microseconds`.
//
// Calls that pass one clock on, each to the next, run one after the other, as the programs of a
// device do; the thread that executes the program sleeps meanwhile. Off unless
// GANGWAY_SIMULATED_WORK=1 is in the environment of the workers and the compiler.
#ifndef GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
#define GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_

#include "absl/status/status.h"

#include "gangway/device/device.h"

namespace gangway::device {

// Errors: those of Backend::RegisterFfiHandlers.
absl::Status RegisterSimulatedWork(Backend& backend);

// Registers it where the environment asks for it. To be called once by each process that compiles
// or loads programs; a failure is logged, and programs with such a call are then refused.
void OfferSimulatedWork(Backend& backend);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
