// Carries out the actions of the worker's core on one event loop. Owns the storages, executables,
// device threads and data streams. Created and destroyed by RunWorker (worker.h), which also owns
// the links.
//
// Threading: the event loop owns all state here; nothing on it blocks. Executables are loaded on a
// separate thread. Device threads and runtime callbacks post their results to the loop.
#ifndef GANGWAY_WORKER_SERVICE_WORKER_SERVICE_H_
#define GANGWAY_WORKER_SERVICE_WORKER_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/mutex.h"
#include "gangway/base/shared_heap.h"
#include "gangway/device/device.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/collective/collective_peers.h"
#include "gangway/worker/service/collective/long_waits.h"
#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/device/short_launches.h"
#include "gangway/worker/service/launch/gang_watch.h"
#include "gangway/worker/service/launch/host_calls.h"
#include "gangway/worker/service/launch/local_executables.h"
#include "gangway/worker/service/launch/running_gangs.h"
#include "gangway/worker/service/memory/local_storages.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/reports.h"
#include "gangway/worker/service/shared_by_workers.h"
#include "gangway/worker/service/task_factory.h"
#include "gangway/worker/service/transfer/data_streams.h"
#include "gangway/worker/service/transfer/stream_transfers.h"

namespace gangway::worker {

struct ServiceOptions {
  Identity identity;
  uint64_t memory_budget_bytes = 0;             // per device, reported; 0: no limit
  uint64_t host_bytes_max = uint64_t{8} << 30;  // as in WorkerOptions
  std::chrono::milliseconds wait_limit{600'000};
  std::chrono::milliseconds transfer_silence_max{10'000};
  std::chrono::milliseconds callback_limit{120'000};  // as in WorkerOptions
  size_t shared_bytes_max = 0;                        // as in WorkerOptions; 0: none
  size_t shared_shard_min = 0;                        // smaller shards go on streams
  SharedHeap heap;                                    // as in WorkerOptions
  uint32_t island = 0;
  uint32_t index = 0;  // in the island
  std::string host;
  std::function<void()> on_left;      // on the loop, after a Leave: all work is done
  SharedByWorkers* shared = nullptr;  // of simulated workers in one process; outlives the service
};

class WorkerService {
 public:
  // `send` gets frames for the scheduler, on the loop, which may be others' too. `backend` and `loop` outlive this and
  // the runtime's callbacks; `data` connects to other workers, and outlives this too.
  WorkerService(ServiceOptions options, std::shared_ptr<EventLoop> loop, device::Backend* backend,
                transport::Transport* data, std::function<void(wire::Frame)> send);
  ~WorkerService();  // after Shutdown, and the loop has stopped

  // On the loop.
  void OnBatch(wire::IslandBatch batch);
  // Before SetDataKey.
  void Isolate() { streams_.Isolate(); }
  void SetEnded(const wire::EndedSessions::Runs& sessions) { streams_.SetEnded(sessions); }
  void SetDataKey(std::string key) {
    transfers_.SetDataKey(key);
    peers_.streams().SetToken(transport::DataToken(key, kPeerSession));
    streams_.SetKey(std::move(key));
  }

  // From now on, this process holds the latency request while it has nodes.
  void UseLatencyRequest() { latency_.Use(loop_.get()); }

  transport::LinkEvents AcceptData(std::shared_ptr<transport::Link> link) {  // any thread
    return streams_.Accept(std::move(link));
  }

  // For the registration: where this worker takes the collectives' memory of others.
  const wire::DescriptorSocket& collectives_socket() const { return peers_.socket(); }

  // Since when the loop runs a program, and so can hear nothing. Any thread.
  std::optional<Clock::time_point> LoopRunsSince() const;
  // The current call for each device into the device runtime. Any thread.
  std::vector<DeviceThread::Call> Calls() const;
  // One host callback per local device that waits for one. Any thread.
  std::map<int, HostCalls::Caller> WaitingForClients() const { return host_calls_->Waiting(); }
  // What the members of gangs with collectives of Gangway's own do that take long. Always from the same thread.
  std::vector<wire::GangMember> LongMembers(Clock::time_point now) const;
  // The local devices on which a member sleeps in a collective. Any thread.
  std::map<int, collective::Waiting> WaitingForMembers() const { return peers_.Waiting(); }
  // Why the scheduler has told the worker to end itself, if it has. Any thread.
  std::optional<wire::Failure> EndRequest() const GANGWAY_EXCLUDES(end_mutex_) {
    MutexLock lock(end_mutex_);
    return end_request_;
  }
  // The failure of a gang that can never end (gang_watch.h). Always from the same thread.
  std::optional<wire::Failure> StandingGang(Clock::time_point now,
                                            std::chrono::milliseconds limit) {
    return gangs_->Look(now, limit);
  }

  // Ends the streams and the device threads, and waits for the runtime's callbacks. To be called
  // once, not on the loop. DEADLINE_EXCEEDED: a device or the runtime does not end, as the message
  // says; only ending the process helps.
  absl::Status Shutdown(std::chrono::milliseconds limit);

 private:
  StreamTransfers::Options TransferOptions(transport::Transport* data);
  TaskFactory::Options TaskOptions();

  void Step(Event event);
  void StepOnce(Event event);
  void Post(Event event);  // any thread
  void ReportChanges();    // every second: memory use, progress of uploads

  void Do(Action& action);  // by the part that keeps what it concerns
  void RunTask(NodeTask& task, OrderPosition position);
  void EndRoundLater();
  void EndRound();
  void StartDeviceThreads();
  void OpenDevices(const wire::OpenDevices& open);
  wire::Usage Usage() const;

  const ServiceOptions options_;
  const std::shared_ptr<EventLoop> loop_;
  device::Backend* const backend_;
  Reports reports_;
  const LocalStorages storages_;
  const std::shared_ptr<InFlight> callbacks_ = std::make_shared<InFlight>();
  const std::shared_ptr<GangWatch> gangs_ = std::make_shared<GangWatch>();
  const std::shared_ptr<RunningGangs> running_ = std::make_shared<RunningGangs>();
  const std::shared_ptr<HostCalls> host_calls_;
  WorkerCore core_;
  LatencyHold latency_{&LatencyRequest::OfProcess()};
  const std::shared_ptr<StagingMemory> staging_;
  StreamTransfers transfers_;
  CollectivePeers peers_;
  LongWaits long_waits_;
  DataStreams streams_;
  std::vector<std::shared_ptr<DeviceThread>> devices_;
  std::vector<std::shared_ptr<InFlight>> host_callers_;  // by device
  const std::shared_ptr<SpareThreads> spare_threads_ = std::make_shared<SpareThreads>();
  TaskFactory tasks_;
  bool leaving_ = false;  // the controller sends no new work
  ShortLaunches short_launches_{options_.shared == nullptr ? kShortRound : kShortSharedRound};
  std::atomic<Clock::rep> own_loop_runs_since_ = 0;
  // Since the epoch of Clock; 0: the loop runs none.
  std::atomic<Clock::rep>* const loop_runs_since_ =
      options_.shared == nullptr ? &own_loop_runs_since_ : &options_.shared->loop_runs_since;
  bool stepping_ = false;                 // in Step
  std::vector<NodeEnded> ended_in_step_;  // by the loop itself
  mutable Mutex end_mutex_;
  std::optional<wire::Failure> end_request_ GANGWAY_GUARDED_BY(end_mutex_);
  bool ends_round_ = false;  // EndRound follows
  // Last: what it loads uses the other members.
  LocalExecutables executables_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_WORKER_SERVICE_H_
