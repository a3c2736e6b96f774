// A custom call that only takes time: "gangway_simulated_work" maps (clock, x) to (clock, x) after
// `microseconds`. It gives pipeline benchmarks stages of a known length on few cores.
//
// Calls that pass one clock along run one after another, like the programs of a device; the thread
// that executes the program sleeps during each call. Off unless GANGWAY_SIMULATED_WORK=1 is in the
// environment of the workers and the compiler.
#ifndef GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
#define GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_

#include "absl/status/status.h"

#include "gangway/device/device.h"

namespace gangway::device {

// Errors: those of Backend::RegisterFfiHandlers.
absl::Status RegisterSimulatedWork(Backend& backend);

// Registers it if the environment asks for it. Each process that compiles or loads programs calls
// this once. A failure is logged, and programs with such a call are then rejected.
void OfferSimulatedWork(Backend& backend);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_SIMULATED_WORK_H_
