// The queues of the simulated devices, which decide when each run starts. Internal to device/sim.
// Thread-safe. Callbacks run without its lock. Held by shared_ptr: timer tasks hold it weakly.
#ifndef GANGWAY_DEVICE_SIM_SIM_ENGINE_H_
#define GANGWAY_DEVICE_SIM_SIM_ENGINE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/device/sim/sim_program.h"
#include "gangway/device/sim/sim_storage.h"

namespace gangway::device {

struct SimGang;

// One execute on one device. The first group is set before Enqueue; the engine's lock guards the
// second.
struct SimRun {
  std::shared_ptr<const SimProgram> program;
  int device = 0;
  int position = 0;
  std::vector<std::shared_ptr<SimStorage>> inputs;
  std::vector<std::shared_ptr<SimStorage>> outputs;
  StatusCallback on_complete;
  CollectiveCall collective;  // empty: none

  std::shared_ptr<SimGang> gang;  // null for a run without peers
  size_t unsettled_inputs = 0;
  std::vector<SimStorage::Contents> contents;
  absl::Status error;  // of an input or a fault
  int64_t ready_us = 0;
  uint64_t digest = 0;
  std::vector<std::vector<std::byte>>
      values;  // the inputs of a program with collectives of its own
  bool ready = false;
  bool hung = false;
  bool started = false;
};

// The runs of one launch of a collective program.
struct SimGang {
  std::vector<std::shared_ptr<SimRun>>
      members;      // by position; null until enqueued. Emptied when the gang starts.
  int waiting = 0;  // members that are ready at the head of their queue
};

class SimEngine : public std::enable_shared_from_this<SimEngine> {
 public:
  SimEngine(const SimOptions& options, std::shared_ptr<SimTimer> timer)
      : first_device_(options.first_device),
        inflight_max_(options.inflight_max),
        completion_delay_us_(options.completion_delay_us),
        timer_(std::move(timer)),
        devices_(options.device_count) {}

  // `executable` and `launch_id` identify the gang (launch_id 0: the k-th run on each device).
  // RESOURCE_EXHAUSTED: the device's window is full; INVALID_ARGUMENT: this device already has a
  // run of this launch; CANCELLED: closed.
  absl::Status Enqueue(const std::shared_ptr<SimRun>& run, uint64_t executable, int32_t launch_id);

  void Inject(SimFault fault);
  void ReleaseHung();
  int64_t BusyMicros(int device) const;
  // Ends every run whose outputs are not settled with CANCELLED. Later calls of Enqueue fail. Returns when no run is in
  // a collective: the owner of a run must end its collectives when on_complete says that the run has ended.
  void Close();

 private:
  struct Device {
    std::deque<std::shared_ptr<SimRun>> queue;  // the head is the running or next one
    int64_t free_us = 0;
    int64_t busy_us = 0;
    std::unique_ptr<EventLoop>
        members;  // runs collectives, which block; made for the first of them
    std::map<uint64_t, int64_t> launches;  // per executable: runs so far without a launch id
  };
  struct Start {
    std::shared_ptr<SimRun> run;
    int64_t end_us;
  };
  using Starts = std::vector<Start>;
  using GangKey = std::pair<uint64_t, std::pair<bool, int64_t>>;

  // Returns the runs that may start now.
  [[nodiscard]] Starts InputSettled(const std::shared_ptr<SimRun>& run, size_t index,
                                    const absl::Status& status,
                                    const SimStorage::Contents& contents, int64_t at_us);
  absl::Status JoinGang(const std::shared_ptr<SimRun>& run, uint64_t executable, int32_t launch_id)
      GANGWAY_REQUIRES(mutex_);
  void ApplyFaults(SimRun* run) GANGWAY_REQUIRES(mutex_);
  // Starts the head of the device's queue if it may run. A gang starts with its last ready member.
  void TryStart(int device, Starts* starts) GANGWAY_REQUIRES(mutex_);
  void StartGang(SimGang* gang, Starts* starts) GANGWAY_REQUIRES(mutex_);
  void Schedule(const Starts& starts);
  // In Enqueue: ends the runs that take no time, and schedules the others.
  void RunInline(const Starts& starts, int64_t now_us);
  static bool Communicates(const SimRun& run);
  // Its time on the device is over; what it has to say to other members comes then.
  void Finish(const std::shared_ptr<SimRun>& run, int64_t end_us);
  void Communicate(const std::shared_ptr<SimRun>& run);
  void End(const std::shared_ptr<SimRun>& run, int64_t end_us);
  static void SettleOutputs(SimRun* run, const absl::Status& status, int64_t end_us);
  // Says that the run has ended.
  static void Complete(SimRun* run);
  // Unless Close has said so, which takes the run off `ending_`.
  void CompleteLate(const std::shared_ptr<SimRun>& run);

  const int first_device_;
  const int inflight_max_;
  const int64_t completion_delay_us_;
  const std::shared_ptr<SimTimer> timer_;

  mutable Mutex mutex_;
  std::vector<Device> devices_ GANGWAY_GUARDED_BY(mutex_);
  std::map<GangKey, std::shared_ptr<SimGang>> gangs_
      GANGWAY_GUARDED_BY(mutex_);  // not all members enqueued yet
  std::vector<std::shared_ptr<SimRun>> ending_
      GANGWAY_GUARDED_BY(mutex_);  // whose outputs are settled, and on_complete is yet to come
  std::vector<SimFault> faults_ GANGWAY_GUARDED_BY(mutex_);
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_ENGINE_H_
