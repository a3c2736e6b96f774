// The Client of one session. Submitting threads append to one pending batch under a lock. On an
// idle link they send it themselves; on a busy link the client's loop sends the accumulated batch
// as one frame. See client.h for the contract with callers.
//
// Threading: `mutex_` guards the state that submitting threads and the loop share; it is never held
// while a callback runs. Only the loop uses data links, but
// PushNow runs on callers' threads, too. Failure: losing the controller ends
// everything pending with UNAVAILABLE; the client does not reconnect. In a forked child every
// question is answered with UNAVAILABLE on the caller's thread, and the rest does nothing.
#ifndef GANGWAY_CLIENT_CLIENT_IMPL_H_
#define GANGWAY_CLIENT_CLIENT_IMPL_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/executor.h"
#include "gangway/base/fork.h"
#include "gangway/base/latency_request.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"
#include "gangway/client/connect.h"
#include "gangway/client/control_watch.h"
#include "gangway/client/data_links.h"
#include "gangway/client/host_callbacks.h"
#include "gangway/client/node_ends.h"
#include "gangway/client/session_wait.h"
#include "gangway/transport/bulk/incoming_shard.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/wire/trace_collection.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class ClientImpl final : public Client {
 public:
  explicit ClientImpl(const ClientOptions& options);
  ~ClientImpl() override;

  absl::Status Open();  // blocks, within the limit

  const ClusterInfo& cluster() const override { return cluster_; }
  ArrayHandle NewArrayHandle() override {
    return next_array_.fetch_add(1, std::memory_order_relaxed);
  }
  ExecutableHandle Compile(std::string program, std::string format, std::string options,
                           std::vector<uint32_t> devices, CompileCallback done) override;
  void DropExecutables(std::span<const ExecutableHandle> executables) override;
  bool reports_ends() const override { return options_.reports_ends; }
  uint64_t losses() const override { return losses_.load(std::memory_order_relaxed); }
  uint64_t Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) override;
  void Push(uint64_t upload, uint32_t shard, std::string_view data,
            std::function<void()> released) override;
  void Reserve(uint64_t upload, uint32_t shard,
               std::function<void(std::shared_ptr<char> place)> placed) override;
  void AbandonUpload(uint64_t upload, Status why) override;
  void Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
            std::span<const ArrayHandle> results, CallOptions options) override;
  void Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
            std::span<const uint32_t> devices, const std::string& memory_kind,
            StatusCallback ended) override;
  void Regroup(std::vector<Regrouped> results) override;
  void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) override;
  void SendNow() override;
  std::shared_ptr<Wait> NewWait() override {
    return std::make_shared<SessionWait>(&loop_, fork_generation_);
  }
  void Await(std::span<const ArrayHandle> arrays, StatusCallback done) override;
  void Drop(std::span<const ArrayHandle> arrays) override;
  void Delete(std::span<const ArrayHandle> arrays) override;
  void DropShard(ShardOf shard, uint32_t shard_count) override;
  void Poison(std::span<const ArrayHandle> arrays, const Status& why) override;
  uint64_t pending() const override;
  uint64_t pending_max() const override { return options_.pending_max; }
  void WhenRoom(std::function<void()> on_room) override;
  void Usage(UsageCallback done) override;
  void Profile(ProfileCallback done) override;
  void OnLost(StatusCallback lost) override;
  void ServeHostCallbacks(HostFunctions functions) override {
    host_callbacks_.Serve(std::move(functions));
  }

 private:
  using Devices = std::shared_ptr<const std::vector<uint32_t>>;  // of an array's shards, in order

  // An upload whose bytes have not all been pushed.
  struct Uploading {
    Devices devices;
    std::map<WorkerKey, Destination> destinations;
    uint64_t shard_bytes = 0;
    std::vector<bool> pushed;
    size_t left = 0;
  };
  // What one call of Fetch asked for. Once it is submitted, only the loop uses it.
  struct FetchPart {
    size_t first = 0;  // place of its first shard in the operation
    std::vector<transport::IncomingShard> shards;
    size_t left = 0;  // shards that are not complete
    FetchSink sink;
  };
  // One operation: the part of a call, or of several that have joined.
  struct Fetching {
    std::vector<std::shared_ptr<FetchPart>> part_of;  // by shard; null: it is complete
    std::vector<std::optional<WorkerKey>> worker_of;  // by shard; null: unknown to this client
    size_t left = 0;                                  // shards that are not complete
    bool is_joint = false;                            // all its parts may join
  };
  // Sent by the next flush, beside the batch.
  struct OutgoingPush {
    uint32_t device = 0;
    client::Push push;
    std::function<void(std::shared_ptr<char>)> placed;  // set: only requests a place for the push
  };
  // Declared before the lock under which an operation is appended, it sends the operation after the
  // lock is released, on the caller's thread (a link's Send never blocks). This saves each call
  // a thread handoff.
  enum class Urgency { kBatched, kAtOnce };
  class Sending {
   public:
    explicit Sending(ClientImpl* client, Urgency urgency = Urgency::kBatched)
        : client_(client), urgency_(urgency) {}
    ~Sending() { client_->SendOrWake(urgency_); }

   private:
    ClientImpl* const client_;
    const Urgency urgency_;
  };
  struct Profiling {
    uint64_t query = 0;
    ProfileCallback done;
    int64_t asked_ns = 0;              // on this host's clock
    std::optional<int64_t> offset_ns;  // from the controller's clock to this host's
    wire::TraceCollection collection;
  };
  struct Pending {       // callbacks that have not run
    uint64_t usage = 0;  // the query under way
    std::vector<UsageCallback> usages;
    std::optional<Profiling> profiling;
    std::map<uint64_t, CompileCallback> compiles;
    std::map<uint64_t, StatusCallback> awaits;
    std::map<uint64_t, Fetching> fetches;
    std::vector<std::function<void()>> room;
    NodeEnds ends;
  };
  // An array whose shards are dropped one by one.
  struct Dropping {
    uint32_t left = 0;             // shards that are not dropped
    std::vector<uint32_t> unsent;  // dropped ones of which the controller does not know
  };

  // client_impl.cc: opening, flushing, ending.
  void OnFrame(wire::Frame frame);
  void OnWelcome(const wire::HelloReply& reply);
  void UseLatencyRequest();
  void OnControlClosed(const absl::Status& why);
  void Flush();
  void SendBatches() GANGWAY_EXCLUDES(mutex_);
  void Stamp(wire::Frame& frame);
  void OnControlWritable() GANGWAY_EXCLUDES(mutex_);
  void SendOrWake(Urgency urgency) GANGWAY_EXCLUDES(mutex_);
  bool IsBurst() GANGWAY_REQUIRES(mutex_);
  void FlushSoon() GANGWAY_REQUIRES(mutex_);
  void RunDeferred();
  void Lose(const absl::Status& why);        // the session is gone
  void EndPending(const absl::Status& why);  // runs all pending callbacks
  void Shutdown();
  // Sending or SendSoon sends it. `ended`: at the end of its nodes.
  wire::Op* NewOp(uint64_t nodes, StatusCallback ended = nullptr) GANGWAY_REQUIRES(mutex_);
  wire::Op* LastOp() GANGWAY_REQUIRES(mutex_);  // that no frame has taken yet; null: none
  void DeferEnd(StatusCallback ended) GANGWAY_REQUIRES(mutex_);
  // In a forked child, whose calls must not even take the lock.
  bool IsOrphan() const { return ForkGeneration() != fork_generation_; }
  static absl::Status Orphaned();
  void AppendDrop(std::span<const ArrayHandle> arrays) GANGWAY_REQUIRES(mutex_);
  std::optional<WorkerKey> WorkerOf(ArrayHandle array, uint32_t shard) const
      GANGWAY_REQUIRES(mutex_);
  // The operation that is being filled with fetches from `worker`, if it takes one more; else a new one.
  wire::FetchOp* JoinableFetch(const std::optional<WorkerKey>& worker, bool may_join)
      GANGWAY_REQUIRES(mutex_);
  void AppendShardDrops() GANGWAY_REQUIRES(mutex_);
  void SendSoon() GANGWAY_REQUIRES(mutex_);
  void Wake() GANGWAY_REQUIRES(mutex_);
  void Defer(std::function<void()> task) GANGWAY_REQUIRES(mutex_);
  // Tells the controller that not all bytes of the upload will come.
  void Abandon(uint64_t upload, const absl::Status& why) GANGWAY_REQUIRES(mutex_);
  // Something is under way that a data link may lose, or that the controller is to answer.
  void WatchLinks() GANGWAY_REQUIRES(mutex_);
  void OnWatch() GANGWAY_EXCLUDES(mutex_);
  // Loses the session if the controller is silent; else asks it for a sign of life, if it has answered the last one.
  void WatchController() GANGWAY_EXCLUDES(mutex_);
  std::string SilenceOfController() const;
  bool AwaitsAnswer() const GANGWAY_REQUIRES(mutex_);
  bool AwaitsController() const GANGWAY_REQUIRES(mutex_);
  // Tells the latency request whether something is under way.
  void NoteBusy() GANGWAY_REQUIRES(mutex_);
  std::map<WorkerKey, Destination> DestinationsOf(const std::vector<uint32_t>& devices) const
      GANGWAY_REQUIRES(mutex_);
  // `in_burst`: its upload waits to be sent with others, and so may its bytes.
  std::optional<OutgoingPush> TakePush(uint64_t upload, uint32_t shard, std::string_view data,
                                       bool& in_burst) GANGWAY_EXCLUDES(mutex_);
  OutgoingPush NewPush(uint64_t upload, const Uploading& uploading, uint32_t shard) const
      GANGWAY_REQUIRES(mutex_);
  void NoteWorker(const wire::Worker& worker, bool up, const std::string& why_down = "");

  // client_events.cc: handling what the cluster sends, on the loop.
  void OnEvents(wire::SessionEvents& events);
  void OnCompiled(wire::Compiled& compiled);
  void OnAwaitDone(const wire::AwaitDone& done);
  void WithdrawUpload(uint64_t upload);
  void ForgetUpload(uint64_t upload);
  void OnProgress(const wire::Progress& progress);
  void OnShard(const wire::Bulk& bulk);
  void OnPlace(uint64_t fetch, uint32_t shard, std::shared_ptr<const char> bytes, size_t size);
  std::shared_ptr<FetchPart> FindPart(uint64_t fetch, uint32_t shard) GANGWAY_EXCLUDES(mutex_);
  void CompleteShard(uint64_t fetch, uint32_t shard) GANGWAY_EXCLUDES(mutex_);
  void OnWorkerLost(WorkerKey worker, const absl::Status& why);
  // The workers that have not sent all of their shards of the fetch; all workers if one of these is not known.
  std::set<WorkerKey> Awaited(const Fetching& fetching) const GANGWAY_REQUIRES(mutex_);
  void EndFetch(uint64_t fetch, const absl::Status& why);
  static void EndParts(const Fetching& fetching, const absl::Status& why);
  void TellRoom();

  // client_queries.cc: questions about the cluster.
  void SendQuery(wire::Frame frame) GANGWAY_EXCLUDES(mutex_);
  void OnUsage(const wire::UsageReply& reply);
  void EndUsage(uint64_t query, const absl::StatusOr<std::vector<DeviceMemory>>& answer);
  void OnTraceReply(const wire::TraceReply& reply);
  static SessionProfile ToProfile(const wire::TraceCollection& collection, int64_t offset_ns);
  void EndProfile(uint64_t query, const absl::StatusOr<SessionProfile>& answer);

  const ClientOptions options_;
  const uint64_t fork_generation_ = ForkGeneration();
  std::atomic<ArrayHandle> next_array_{ArrayHandle{1} << 62};
  std::atomic<uint64_t> submitted_{0};  // nodes
  std::atomic<uint64_t> ended_{0};
  std::atomic<uint64_t> losses_{0};

  // Set while opening, constant afterwards.
  ClusterInfo cluster_;
  absl::flat_hash_map<uint32_t, WorkerKey> worker_of_;  // by device

  mutable Mutex mutex_;
  CondVar opened_;
  std::optional<absl::Status> welcome_ GANGWAY_GUARDED_BY(mutex_);
  absl::Status lost_ GANGWAY_GUARDED_BY(mutex_);  // not OK: nothing more is submitted
  bool flush_posted_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool sending_ GANGWAY_GUARDED_BY(mutex_) = false;     // a thread is in SendBatches
  bool send_soon_ GANGWAY_GUARDED_BY(mutex_) = false;   // a timer will send
  bool flush_soon_ GANGWAY_GUARDED_BY(mutex_) = false;  // a timer will flush
  int sends_left_ GANGWAY_GUARDED_BY(mutex_) = 0;       // at once, by callers
  Clock::time_point refilled_ GANGWAY_GUARDED_BY(mutex_);
  bool watching_ GANGWAY_GUARDED_BY(mutex_) = false;  // a timer will call OnWatch
  std::shared_ptr<transport::Link> control_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<wire::Frame> batches_ GANGWAY_GUARDED_BY(mutex_);  // the last one is being filled
  std::vector<OutgoingPush> pushes_ GANGWAY_GUARDED_BY(mutex_);
  std::map<WorkerKey, Destination> workers_ GANGWAY_GUARDED_BY(mutex_);  // for new uploads
  std::vector<std::function<void()>> deferred_ GANGWAY_GUARDED_BY(mutex_);
  uint64_t next_id_ GANGWAY_GUARDED_BY(mutex_) = 1;  // of executables, uploads, fetches, awaits
  Pending pending_ GANGWAY_GUARDED_BY(mutex_);
  LatencyHold latency_ GANGWAY_GUARDED_BY(mutex_){&LatencyRequest::OfProcess()};
  absl::flat_hash_map<uint64_t, Uploading> uploads_ GANGWAY_GUARDED_BY(mutex_);
  // The devices of each array, which determine the workers that a fetch waits for.
  absl::flat_hash_map<ArrayHandle, Devices> placements_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<ExecutableHandle, Devices> executables_ GANGWAY_GUARDED_BY(mutex_);
  absl::flat_hash_map<ArrayHandle, Dropping> dropping_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<ArrayHandle> shard_drops_
      GANGWAY_GUARDED_BY(mutex_);  // in dropping_, with unsent ones
  StatusCallback on_lost_ GANGWAY_GUARDED_BY(mutex_);

  // Of OnWatch; used only on the loop.
  int idle_looks_ = 0;  // in a row
  ControlWatch control_watch_{options_.controller_silence_max, DataLinks::kWatchInterval};
  Mutex sender_mutex_;  // never held together with mutex_
  std::unique_ptr<transport::PacedSender> sender_ GANGWAY_GUARDED_BY(sender_mutex_);  // on control_
  uint64_t control_sequence_ = 0;  // used only in calls of sender_

  HostCallbacks host_callbacks_;
  EventLoop loop_{"gw-client"};
  std::unique_ptr<DataLinks> data_links_;  // made on the loop; destroyed before it
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CLIENT_IMPL_H_
