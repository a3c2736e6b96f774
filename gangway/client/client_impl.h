// The Client of one session, composed of what it keeps: Submitter (the control link and what goes to the controller),
// Handles, Uploads, Fetches, Questions, Activity (what is under way), HostCallbacks and DataLinks (the workers'
// streams). It opens the session, hands what the cluster sends to these parts, and ends them. See client.h for the
// contract with callers.
//
// Threading: the parts are thread-safe, each with a lock of its own; the order of the locks is Fetches, Uploads or
// Questions, then Handles, Submitter, Activity. No callback runs under any of them. Data links are used on the loop
// only, but PushNow runs on callers' threads, too.
//
// Failure: losing the controller ends everything pending with UNAVAILABLE; the client does not reconnect. In a forked
// child every question is answered with UNAVAILABLE on the caller's thread, and the rest does nothing.
#ifndef GANGWAY_CLIENT_CLIENT_IMPL_H_
#define GANGWAY_CLIENT_CLIENT_IMPL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/client/activity.h"
#include "gangway/client/client.h"
#include "gangway/client/connect.h"
#include "gangway/client/controller_silence.h"
#include "gangway/client/data_links.h"
#include "gangway/client/fetches.h"
#include "gangway/client/handles.h"
#include "gangway/client/host_callbacks.h"
#include "gangway/client/origin.h"
#include "gangway/client/questions.h"
#include "gangway/client/session_wait.h"
#include "gangway/client/submitter.h"
#include "gangway/client/uploads.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class ClientImpl final : public Client {
 public:
  explicit ClientImpl(const ClientOptions& options);
  ~ClientImpl() override;

  absl::Status Open();  // blocks, within the limit

  const ClusterInfo& cluster() const override { return cluster_; }
  ArrayHandle NewArrayHandle() override {
    return ArrayHandle(next_array_.fetch_add(1, std::memory_order_relaxed));
  }
  ExecutableHandle Compile(std::string program, std::string format, std::string options,
                           std::vector<uint32_t> devices, CompileCallback done) override;
  void DropExecutables(std::span<const ExecutableHandle> executables) override;
  bool reports_ends() const override { return options_.reports_ends; }
  uint64_t losses() const override { return losses_.load(std::memory_order_relaxed); }
  OperationId Put(ArrayHandle array, const ArraySpec& spec,
                  std::span<const std::string_view> shards, StatusCallback ended) override;
  OperationId Upload(ArrayHandle array, const ArraySpec& spec, StatusCallback ended) override;
  void Push(OperationId upload, uint32_t shard, std::string_view data,
            std::function<void()> released) override;
  void Reserve(OperationId upload, uint32_t shard,
               std::function<void(std::shared_ptr<char> place)> placed) override;
  void AbandonUpload(OperationId upload, Status why) override;
  OperationId Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                   std::span<const ArrayHandle> results, CallOptions options) override;
  OperationId Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                   std::span<const uint32_t> devices, const std::string& memory_kind,
                   StatusCallback ended) override;
  void Regroup(std::vector<Regrouped> results) override;
  void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) override;
  void SendNow() override;
  std::shared_ptr<Wait> NewWait() override {
    return std::make_shared<SessionWait>(&loop_, origin_);
  }
  void Await(std::span<const ArrayHandle> arrays, StatusCallback done) override;
  void Drop(std::span<const ArrayHandle> arrays) override;
  void Delete(std::span<const ArrayHandle> arrays) override;
  void DropShard(ShardOf shard, uint32_t shard_count) override;
  void Poison(std::span<const ArrayHandle> arrays, const Status& why) override;
  uint64_t pending() const override { return submitter_.pending(); }
  uint64_t pending_max() const override { return options_.pending_max; }
  void WhenRoom(std::function<void()> on_room) override;
  void Usage(UsageCallback done) override;
  void Profile(ProfileCallback done) override;
  void BeginLook() override;
  void EndLook() override;
  void LookFor(OperationId operation) override;
  void OnLost(StatusCallback lost) override;
  void ServeHostCallbacks(HostFunctions functions) override {
    host_callbacks_.Serve(std::move(functions));
  }

 private:
  // All on the loop.
  void OnFrame(wire::Frame frame);
  void OnWelcome(const wire::HelloReply& reply);
  void OpenLinks(const wire::HelloReply& reply);
  void OnEvent(wire::SessionEvent& event);
  void NoteWorker(const wire::Worker& worker, bool up, const std::string& why_down = "");
  bool Look();
  void Lose(const absl::Status& why);        // the session is gone
  void EndPending(const absl::Status& why);  // runs all pending callbacks
  void Shutdown();

  const ClientOptions options_;
  const Origin origin_;
  std::atomic<uint64_t> next_array_{uint64_t{1} << 62};
  std::atomic<uint64_t> losses_{0};
  ClusterInfo cluster_;  // set while opening, constant afterwards

  Mutex mutex_;
  CondVar opened_;
  std::optional<absl::Status> welcome_ GANGWAY_GUARDED_BY(mutex_);
  StatusCallback on_lost_ GANGWAY_GUARDED_BY(mutex_);

  HostCallbacks host_callbacks_;
  EventLoop loop_{"gw-client"};
  Activity activity_;
  Submitter submitter_;
  Handles handles_{&loop_, &submitter_};
  Uploads uploads_{&loop_, &activity_, &submitter_, &handles_};
  Fetches fetches_{&activity_, &submitter_, &handles_,
                   [this](WorkerKey worker) { data_links_->Use(worker); }};
  Questions questions_{&loop_, &activity_, &submitter_};
  ControllerSilence controller_;           // on the loop
  std::unique_ptr<DataLinks> data_links_;  // made on the loop
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CLIENT_IMPL_H_
