// The life of a worker process: it opens the device runtime, registers with its scheduler, and
// works until it is told to stop or the scheduler is gone. Also runs inside a test, over any
// transport.
#ifndef GANGWAY_WORKER_SERVICE_WORKER_H_
#define GANGWAY_WORKER_SERVICE_WORKER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/base/shared_heap.h"
#include "gangway/device/device.h"
#include "gangway/device/device_memory.h"
#include "gangway/transport/transport.h"

namespace gangway::worker {

struct WorkerOptions {
  std::string scheduler_address;
  std::string token;  // of the cluster
  // In the format of the data transport: "127.0.0.1:0", "unix-abstract:", an in-process name.
  std::string data_listen_address;
  // The host under which others reach that address, if it differs from the listening one
  // ("0.0.0.0").
  std::string data_host;
  uint32_t island = 0;
  uint32_t index = 0;  // in the island
  std::string host = "localhost";

  int device_count = 1;
  std::string plugin_path;             // of a PJRT plugin
  device::DeviceMemory device_memory;  // that the plugin takes
  // Instead of the plugin's, for tests. The runtime's device count must be device_count.
  std::function<absl::StatusOr<std::unique_ptr<device::Backend>>()> open_backend;
  // Instead of the end of this process of the system, where devices are stuck at the end. Does not return.
  std::function<void()> end_process;
  int thread_pool_size =
      64;  // of XLA CPU; it affects the bits of results, so it is the same everywhere

  // The budget of each device (GS-2); 0: no limit. Not set: what the device says or, for CPU devices, half of the
  // host's memory divided by them. Never more than the device says.
  std::optional<uint64_t> memory_budget_bytes;
  uint64_t heap_bytes_max = 0;  // of the process, kept blocks included; 0: no limit
  // Of host memory for bytes on their way: uploads that have no buffers yet, shards for clients and for other workers.
  // One session may take three quarters of it. Not set: a quarter of the host's memory.
  std::optional<uint64_t> host_bytes_max;
  std::chrono::milliseconds connect_limit{30'000};
  std::chrono::milliseconds heartbeat_interval{500};
  // When the scheduler, which sends heartbeats as often, is silent for this long, it counts as
  // gone. Longer than the scheduler's limit for a worker, since all arrays here are lost with the
  // worker.
  std::chrono::milliseconds scheduler_silence_max{10'000};
  std::chrono::milliseconds stuck_after{3'000};   // in one device-runtime call: reported as stuck
  std::chrono::milliseconds leave_limit{30'000};  // to finish existing work when told to leave
  std::chrono::milliseconds loop_runs_max{
      10'000};  // of a program on the event loop; then the worker ends
  std::chrono::milliseconds wait_limit{
      600'000};  // of a device thread, for the results of an earlier program
  std::chrono::milliseconds transfer_silence_max{10'000};  // of a worker that takes part in a copy
  // Of a client, for the reply to a host callback. Below the runtime's limit for collectives: members of the gang may
  // wait for this one.
  std::chrono::milliseconds callback_limit{120'000};
  // Limit of the shared memory for shards that cross between this worker and others on this host,
  // half for workers and half for clients. Idle memory is kept for a while. 0: none, all shards go
  // on streams. Not set: three quarters of the machine's memory.
  std::optional<size_t> shared_bytes_max;
  size_t shared_shard_min = size_t{16} << 10;  // smaller shards go on streams
  // Of this process, if workers of this host may read it; not used without shared memory.
  SharedHeap heap;
  bool latency_request = true;  // hold it while something is under way, if the cluster does
  bool is_guest = false;  // of a process for whose heap and flight recorder another worker speaks
};

// Ends RunWorker from another thread. The first reason stays.
class StopFlag {
 public:
  void Stop(absl::Status reason = absl::OkStatus()) GANGWAY_EXCLUDES(mutex_);

  // Requests an orderly end: the worker takes no new work, and finishes its existing work within
  // leave_limit.
  void Leave() GANGWAY_EXCLUDES(mutex_);
  bool leaving() const GANGWAY_EXCLUDES(mutex_);
  bool TakeLeave() GANGWAY_EXCLUDES(mutex_);  // true once after Leave

  // Waits until stopped (true), until Leave waits to be taken (false), or for `limit` (false).
  bool WaitFor(std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_);

  absl::Status reason() const GANGWAY_EXCLUDES(mutex_);  // OK while not stopped

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> reason_ GANGWAY_GUARDED_BY(mutex_);
  bool leaving_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool leave_taken_ GANGWAY_GUARDED_BY(mutex_) = false;
};

// Whether a pool of `threads` is enough for a worker's devices: each may block a thread in a collective, and each core
// still has one then. FAILED_PRECONDITION: it is not; the message says how many would be.
absl::Status CheckThreadPool(int threads, int devices, int cores);

// Returns when `stop` is set, with its reason. It also sets `stop` itself: with UNAVAILABLE if the
// scheduler cannot be reached within connect_limit, is gone or is silent; with the scheduler's
// failure if that rejects the worker. Errors of opening the devices or the data address are
// returned before the worker registers. Blocks its caller, whose thread sends the heartbeats. If a
// device is stuck in a program at the end, or a gang that lost a member stands in a collective,
// RunWorker ends the process, since the runtime cannot be closed.
absl::Status RunWorker(const WorkerOptions& options, transport::Transport& control,
                       transport::Transport& data, StopFlag& stop);

// The same for `count` workers with simulated devices, from index `first.index` of the island on, in one process. They
// share one event loop, one loader and the threads of a DevicePool, and have a link to the scheduler each. Ends the
// process by `first.end_process` when `stop` is set, once all have left after a Leave, or when one of them must end:
// `stop` has the reason then.
[[noreturn]] void RunSimulatedWorkers(const WorkerOptions& first, uint32_t count,
                                      transport::Transport& control, transport::Transport& data,
                                      StopFlag& stop);

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_WORKER_H_
