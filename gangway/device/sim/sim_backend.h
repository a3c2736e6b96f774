// A simulated accelerator behind device::Backend: programs are declared functions (sim_program.h),
// each device runs them one after another in the order of ExecuteOn, collectives start when all
// their members are at the head of their queues. So two devices that are given two collectives in
// different orders wait for ever, as real ones do.
//
// Threading: as device.h says. Callbacks run on the timer's thread (virtual time: in Advance) or
// inside the call. Differences from a real device, all on purpose: an execute beyond inflight_max
// is RESOURCE_EXHAUSTED at once instead of blocking, so that a broken window is seen; a collective
// whose member is poisoned or failed fails as a whole; bytes are always copied. Closing the backend
// ends all runs with CANCELLED.
#ifndef GANGWAY_DEVICE_SIM_SIM_BACKEND_H_
#define GANGWAY_DEVICE_SIM_SIM_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "gangway/device/device.h"
#include "gangway/device/sim/sim_timer.h"

namespace gangway::device {

struct SimOptions {
  int device_count = 4;
  int inflight_max = 32;
  std::shared_ptr<SimTimer> timer;  // null: real time
};

struct SimFault {
  enum class Kind {
    kFail,  // the run ends with `error` after its cost; a collective fails on all members
    kHang,  // the run never starts, and nothing behind it on that device, until ReleaseHung
  };
  Kind kind = Kind::kFail;
  int device = -1;  // -1: any
  int64_t nth =
      1;  // the nth execute on that device (or on any) from the injection on; 1 = the next
  absl::Status error;
};

class SimBackend : public Backend {
 public:
  virtual void Inject(SimFault fault) = 0;
  // Lets the runs that hang go on.
  virtual void ReleaseHung() = 0;
  // Device time spent in runs so far: utilization is this over the time that passed.
  virtual int64_t BusyMicros(int device) const = 0;
};

std::unique_ptr<SimBackend> OpenSim(SimOptions options);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_BACKEND_H_
