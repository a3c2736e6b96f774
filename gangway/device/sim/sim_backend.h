// A simulated accelerator behind device::Backend. Programs are declared functions (sim_program.h).
// Each device runs them one after another in the order of ExecuteOn. A collective starts when all
// its members are at the heads of their queues, so two devices that receive two collectives in
// different orders deadlock, as real devices do.
//
// A run that takes no time (cost_us 0), and whose arguments are there, ends inside ExecuteOn if no run is before it: a
// null device, which costs no thread. Its collectives then block the caller, as those of XLA CPU do.
//
// Threading: see device.h. Callbacks run on the timer's thread (virtual time: in Advance) or inside
// the call. Intended differences from a real device: an execute beyond inflight_max returns
// RESOURCE_EXHAUSTED at once instead of blocking, so that tests see a window violation; one
// poisoned or failed member fails its whole collective; bytes are always copied. Closing the
// backend ends all runs with CANCELLED.
#ifndef GANGWAY_DEVICE_SIM_SIM_BACKEND_H_
#define GANGWAY_DEVICE_SIM_SIM_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "gangway/device/device.h"
#include "gangway/device/sim/sim_timer.h"

namespace gangway::device {

struct SimOptions {
  int device_count = 4;
  // The number of the first device in the cluster: programs name slow and failing devices by it.
  int first_device = 0;
  int inflight_max = 32;
  bool collectives_block_threads = false;  // what the capabilities say; simulated ones do not
  uint64_t memory_bytes = 0;               // what each device says that it has; 0: nothing
  // How long after the outputs of a run, at most, on_complete says that it has ended: the next run may begin before
  // that, as on a real device. The time is random.
  int64_t completion_delay_us = 0;
  std::shared_ptr<SimTimer> timer;  // null: real time
  // Sees the bytes of all buffers on a device after each change. It must not call the backend.
  std::function<void(int device, int64_t bytes)> on_use;
};

struct SimFault {
  enum class Kind {
    kFail,  // the run ends with `error` after its cost; a collective fails on all members
    kHang,  // the run and all runs behind it on that device do not start until ReleaseHung
  };
  Kind kind = Kind::kFail;
  int device = -1;  // -1: any
  int64_t nth = 1;  // the nth execute on that device (or on any) after the injection; 1 = the next
  absl::Status error;
};

class SimBackend : public Backend {
 public:
  virtual void Inject(SimFault fault) = 0;
  // Resumes the hung runs.
  virtual void ReleaseHung() = 0;
  // Device time spent in runs so far. Utilization is this divided by the elapsed time.
  virtual int64_t BusyMicros(int device) const = 0;
};

std::unique_ptr<SimBackend> OpenSim(SimOptions options);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_BACKEND_H_
