// A worker process's life: opens the device runtime, registers with its scheduler, works until told
// to stop or until the scheduler is gone. Also runs inside a test, over any transport.
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
#include "gangway/device/device.h"
#include "gangway/transport/transport.h"

namespace gangway::worker {

struct WorkerOptions {
  std::string scheduler_address;
  std::string token;  // of the cluster
  // As its transport for data takes it: "127.0.0.1:0", "unix-abstract:", a name in process.
  std::string data_listen_address;
  // Under which others reach that address, where it is not what was listened at ("0.0.0.0").
  std::string data_host;
  uint32_t island = 0;
  uint32_t index = 0;  // in the island
  std::string host = "localhost";

  int device_count = 1;
  std::string plugin_path;  // of a PJRT plugin
  bool sim = false;         // simulated devices instead
  // Instead of both, for tests. The runtime's device count must be device_count.
  std::function<absl::StatusOr<std::unique_ptr<device::Backend>>()> open_backend;
  int thread_pool_size =
      64;  // XLA CPU's; also sets the bits of its results, so the same everywhere
  std::chrono::seconds collective_timeout{
      300};  // XLA CPU then ends the process; its supervisor starts another

  uint64_t memory_budget_bytes = 0;  // per device, as reported; 0: unknown
  size_t staged_bytes_max = size_t{8}
                            << 30;  // per session, of uploads that no buffer was made of yet
  std::chrono::milliseconds connect_limit{30'000};
  std::chrono::milliseconds heartbeat_interval{500};
  // Without a word from the scheduler, whose heartbeats come as often: it, its host or the way from
  // there is gone. Longer than what the scheduler allows a worker, since all arrays here go with
  // it.
  std::chrono::milliseconds scheduler_silence_max{10'000};
  std::chrono::milliseconds stuck_after{3'000};  // in one call of the device runtime: reported
  std::chrono::milliseconds shutdown_limit{5'000};
  std::chrono::milliseconds leave_limit{30'000};  // for the work that there is when told to leave
  std::chrono::milliseconds wait_limit{
      600'000};  // of a device thread, for what an earlier program makes
  std::chrono::milliseconds transfer_silence_max{10'000};  // of a worker that shards are due from
  // Of the memory into which others on this host write shards that come here, half of it for
  // workers and half for clients: while the arrays live, then kept for a while. 0: none, all comes
  // on streams. Not set: half of the machine's.
  std::optional<size_t> shared_bytes_max;
  size_t shared_shard_min = size_t{16} << 10;  // smaller shards come on streams
};

// Ends RunWorker from another thread. The first reason stays.
class StopFlag {
 public:
  void Stop(absl::Status reason = absl::OkStatus()) GANGWAY_EXCLUDES(mutex_);

  // Asks for an end in order: no new work is taken, and what there is finishes first, within the
  // worker's leave_limit.
  void Leave() GANGWAY_EXCLUDES(mutex_);
  bool leaving() const GANGWAY_EXCLUDES(mutex_);
  bool TakeLeave() GANGWAY_EXCLUDES(mutex_);  // true once after Leave

  // True once stopped, waiting at most `limit` for it; false also where Leave waits to be taken.
  bool WaitFor(std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_);

  absl::Status reason() const GANGWAY_EXCLUDES(mutex_);  // OK while not stopped

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> reason_ GANGWAY_GUARDED_BY(mutex_);
  bool leaving_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool leave_taken_ GANGWAY_GUARDED_BY(mutex_) = false;
};

// Returns when `stop` is set, with its reason. Itself sets it: UNAVAILABLE, the scheduler did not
// answer within connect_limit, is gone or silent; the scheduler's own failure, it refused the
// worker. Errors of opening the devices or the data address come back before anything is
// registered. Blocks its caller, whose thread sends the heartbeats. Where a device is stuck in a
// program at the end, it ends the process, since the runtime cannot be closed then.
absl::Status RunWorker(const WorkerOptions& options, transport::Transport& control,
                       transport::Transport& data, StopFlag& stop);

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_WORKER_H_
