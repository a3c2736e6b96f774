// Implementation of worker_service.h.
#include "gangway/worker/service/worker_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <variant>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/spin.h"
#include "gangway/wire/callback_limits.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/launch/late_ends.h"
#include "gangway/worker/service/launch/member_waits.h"

namespace gangway::worker {
namespace {

// Per device. More than one, so that a callback may run programs with callbacks.
constexpr int kHostCallersMax = wire::kCallbackDepthMax;
constexpr std::chrono::seconds kReportInterval{1};
constexpr std::chrono::seconds kLongGang{1};  // from then on, heartbeats tell what its members do

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

// For shared memory: null where the device runtime has no use for it.
std::function<std::shared_ptr<void>(std::span<std::byte>)> Pinning(device::Backend& backend) {
  if (!backend.capabilities().pins_host_memory) return nullptr;
  return [&backend](std::span<std::byte> memory) -> std::shared_ptr<void> {
    auto pinned = backend.PinHostMemory(memory);
    if (pinned.ok()) return *std::move(pinned);
    spdlog::warn("Transfers are slower: the device runtime cannot pin {} bytes: {}", memory.size(),
                 std::string(pinned.status().message()));
    return nullptr;
  };
}

}  // namespace

WorkerService::WorkerService(ServiceOptions options, std::shared_ptr<EventLoop> loop,
                             device::Backend* backend, transport::Transport* data,
                             std::function<void(wire::Frame)> send)
    : options_(std::move(options)),
      loop_(std::move(loop)),
      backend_(backend),
      reports_({.identity = options_.identity,
                .send = std::move(send),
                .on_added = [this] { EndRoundLater(); },
                .usage = [this] { return Usage(); }}),
      storages_(options_.identity,
                [this, loop = loop_](SessionId session, const std::string& found) {
                  loop->Post([this, session, found] { reports_.AddBroken(session, found); });
                }),
      host_calls_(std::make_shared<HostCalls>(
          options_.callback_limit,
          [this, loop = loop_](SessionId session, wire::HostCallback callback) {
            loop->Post([this, session, callback = std::move(callback)]() mutable {
              host_calls_->Name(session, streams_.ClientOf(session));
              streams_.SendCallback(session, std::move(callback));
            });
          })),
      core_(options_.identity),
      staging_(StagingMemory::Make({.bytes_max = options_.host_bytes_max, .loop = loop_.get()})),
      transfers_(TransferOptions(data)),
      peers_({.identity = options_.identity,
              .island = options_.island,
              .index = options_.index,
              .host = options_.host,
              .loop = loop_.get(),
              .transport = data,
              .shared_memory = options_.shared_bytes_max > 0,
              .heap = options_.heap,
              .receiver = options_.shared == nullptr ? nullptr : &options_.shared->transfers,
              .arenas = options_.shared == nullptr ? nullptr : &options_.shared->arenas,
              .on_refused = [this](uint64_t id) { streams_.ForgetPeer(id); },
              .on_long_wait = [this](uint64_t gang) { long_waits_.Tell(gang); }}),
      long_waits_(&peers_, loop_, [this](wire::Report report) { reports_.Add().Swap(&report); }),
      streams_({.loop = loop_.get(),
                .incarnation = options_.identity.incarnation,
                .staging = staging_,
                .shared_bytes_max = options_.shared_bytes_max / 2,
                .pin = Pinning(*backend),
                .peers = {{wire::ROLE_PEER, &transfers_}, {wire::ROLE_MEMBER, &peers_.streams()}}},
               {.on_staged = [this](UploadShardStaged event) { Step(event); },
                .on_refused = [this](UploadRefused event) { Step(std::move(event)); },
                .on_reply =
                    [this](SessionId session, wire::HostCallbackReply reply) {
                      host_calls_->OnReply(session, std::move(reply));
                    },
                .on_callbacks_lost =
                    [this](SessionId session, const absl::Status& why) {
                      host_calls_->Fail(session, why);
                    }}),
      tasks_(TaskOptions()),
      executables_({.backend = backend_,
                    .peers = &peers_,
                    .loader = options_.shared == nullptr ? nullptr : &options_.shared->loader,
                    .on_loaded = [this](ExecutableLoaded event) { Post(std::move(event)); }}) {
  StartDeviceThreads();
  OpenDevices({});
  loop_->Post([this] { ReportChanges(); });
}

WorkerService::~WorkerService() = default;

StreamTransfers::Options WorkerService::TransferOptions(transport::Transport* data) {
  return {.identity = options_.identity,
          .transport = data,
          .loop = options_.shared == nullptr ? nullptr : &options_.shared->transfers,
          .callbacks = callbacks_,
          .on_refused = [this, loop = loop_](
                            uint64_t id) { loop->Post([this, id] { streams_.ForgetPeer(id); }); },
          .silence_max = options_.transfer_silence_max,
          .staging = staging_,
          .charge_received = !backend_->capabilities().host_zero_copy,
          .shared_bytes_max = options_.shared_bytes_max / 2,
          .shared_shard_min = options_.shared_shard_min,
          .pin = Pinning(*backend_)};
}

// Tasks may outlive this, but not their use of the loop.
TaskFactory::Options WorkerService::TaskOptions() {
  return {.backend = backend_,
          .storages = &storages_,
          .executables = &executables_,
          .transfers = &transfers_,
          .staging = staging_,
          .take_upload = [this](SessionId session,
                                UploadId upload) { return streams_.TakeUpload(session, upload); },
          .memory_for = [this](SessionId session) { return streams_.MemoryFor(session); },
          .send =
              [this, loop = loop_](SessionId session, FetchId fetch, uint32_t shard,
                                   std::shared_ptr<FetchedShard> bytes, DataStreams::Sent sent) {
                // What a step reads goes out in the loop's round.
                if (loop->IsLoopThread() && stepping_)
                  return streams_.SendShard(session, fetch, shard, std::move(bytes),
                                            std::move(sent));
                loop->Post([this, session, fetch, shard, bytes = std::move(bytes),
                            sent = std::move(sent)]() mutable {
                  streams_.SendShard(session, fetch, shard, std::move(bytes), std::move(sent));
                });
              }};
}

// Rounds in which nothing happens here cost nothing: many simulated workers share a loop.
void WorkerService::EndRoundLater() {
  if (std::exchange(ends_round_, true)) return;
  loop_->AtRoundEnd([this] { EndRound(); });
}

void WorkerService::EndRound() {
  Step(RoundEnded{});
  ends_round_ = false;
  if (leaving_ && core_.counts().nodes == 0 && options_.on_left) options_.on_left();
  reports_.Flush();
}

void WorkerService::StartDeviceThreads() {
  DevicePool* const pool = options_.shared == nullptr ? nullptr : &options_.shared->devices;
  // One below the runtime's limit, whose count may fall shortly after our callback.
  int inflight_max = std::max(1, backend_->capabilities().inflight_max - 1);
  for (int i = 0; i < options_.identity.device_count; ++i) {
    devices_.push_back(std::make_shared<DeviceThread>(absl::StrCat("device", i), inflight_max,
                                                      options_.wait_limit, pool));
    host_callers_.push_back(std::make_shared<InFlight>(kHostCallersMax));
  }
}

void WorkerService::OnBatch(wire::IslandBatch batch) {
  EndRoundLater();
  for (wire::IslandItem& item : *batch.mutable_items()) {
    if (item.has_open_devices()) {
      OpenDevices(item.open_devices());
      // The scheduler ignores reports of a worker that it has not admitted, so it knows nothing yet.
      reports_.AddUsage(/*probe=*/0);
    }
    leaving_ |= item.has_leave();
    if (item.has_wait_check()) long_waits_.Check(item.wait_check());
    if (item.has_admit_session()) {
      streams_.Admit(SessionId(item.admit_session().session()));
      continue;
    }
    if (item.has_end_worker()) {
      MutexLock lock(end_mutex_);
      end_request_ = std::move(*item.mutable_end_worker());
      continue;
    }
    Step(ItemArrived{std::move(item)});
  }
}

void WorkerService::OpenDevices(const wire::OpenDevices& open) {
  auto environment = std::make_shared<TaskEnvironment>();
  environment->identity = options_.identity;
  environment->devices = devices_;
  environment->device_ids = {open.devices().begin(), open.devices().end()};
  auto late = std::make_shared<LateEnds>(loop_.get());
  environment->ended = [this, loop = loop_, late](NodeEnded event, bool hurries) {
    if (loop->IsLoopThread() && stepping_) return ended_in_step_.push_back(std::move(event));
    const Ordinal ordinal = event.ordinal;
    late->Add(ordinal, hurries,
              [this, event = std::move(event)]() mutable { Step(std::move(event)); });
  };
  // Ends that are held go before it: what is said of the failure waits for the ends of the gang's inputs.
  environment->member_failed = [this, late](MemberFailed event) {
    const Ordinal ordinal = event.ordinal;
    late->Add(ordinal, /*hurries=*/true,
              [this, event = std::move(event)]() mutable { Step(std::move(event)); });
  };
  environment->callbacks = callbacks_;
  if (backend_->capabilities().collectives.take_turns)
    environment->arrivals = std::make_shared<ArrivalOrder>();
  environment->gangs = gangs_;
  environment->running = running_;
  environment->host_calls = host_calls_;
  environment->host_callers = host_callers_;
  environment->spare_threads = spare_threads_;
  environment->backend = backend_;
  environment->staging = staging_;
  environment->wait_limit = options_.wait_limit;
  tasks_.SetEnvironment(std::move(environment));
}

// What the actions end is part of the step, so that its reports go with this round's.
void WorkerService::Step(Event event) {
  if (stepping_) return StepOnce(std::move(event));
  stepping_ = true;
  StepOnce(std::move(event));
  while (!ended_in_step_.empty()) {
    for (NodeEnded& ended : std::exchange(ended_in_step_, {})) StepOnce(std::move(ended));
  }
  stepping_ = false;
}

void WorkerService::StepOnce(Event event) {
  EndRoundLater();
  std::vector<Action> actions = core_.Step(std::move(event));
  latency_.Set(core_.counts().nodes != 0);
  if (core_.counts().nodes != 0) LoopWork::Note();
  for (Action& action : actions) Do(action);
}

void WorkerService::Post(Event event) {
  loop_->Post([this, event = std::move(event)]() mutable { Step(std::move(event)); });
}

void WorkerService::Do(Action& action) {
  std::visit(
      Overloaded{
          [this](CreateStorage& each) { storages_.Create(each); },
          [this](PoisonStorage& each) { LocalStorages::Poison(each, tasks_.environment()); },
          [](DropStorage& each) { LocalStorages::Drop(each); },
          [](DropShards& each) { LocalStorages::Drop(each); },
          [this](LoadExecutable& each) { executables_.Load(each); },
          [this](UnloadExecutable& each) { executables_.Unload(each); },
          [this](UpdatePeer& each) { executables_.UpdatePeer(*each.worker); },
          [this](PrepareLaunch& each) { each.held.Set(tasks_.Make(each)); },
          [this](PrepareCopy& each) { each.held.Set(tasks_.Make(each)); },
          [this](PreparePut& each) { each.held.Set(tasks_.Make(each)); },
          [this](PrepareFetch& each) { each.held.Set(tasks_.Make(each)); },
          [this](FillUpload& each) { tasks_.Make(each)->Enqueue(); },
          [](NamePeers& each) {
            if (const auto task = each.held.get()) task->NamePeers(std::move(each.workers));
          },
          [](CancelTransfers& each) {
            if (const auto task = each.held.get()) task->Cancel(each.failure);
          },
          [](CancelLaunch& each) {
            if (const auto task = each.held.get()) task->Cancel(each.failure);
          },
          [this](Run& each) {
            if (const auto task = each.held.get()) RunTask(*task, each.order_position);
          },
          [](Discard& each) {
            const auto task = each.held.Take();
            if (task != nullptr && each.order_position != OrderPosition())
              task->Skip(each.order_position);
          },
          [this](SkipPosition& each) { peers_.Skip(each.order_position); },
          [this](DropUpload& each) { streams_.RefuseUpload(each.session, each.upload); },
          [this](FailFetch& each) { streams_.FailShards(each); },
          [this](EndStreams& each) { streams_.EndSession(each.session); },
          [this](ReportUsage& each) { reports_.AddUsage(each.probe); },
          [this](SendReports& each) { reports_.Send(std::move(each.batch)); },
          [this](LogWarning& each) { spdlog::warn("{}: {}", options_.identity.name, each.text); },
      },
      action);
}

void WorkerService::RunTask(NodeTask& task, OrderPosition position) {
  task.SetOrderPosition(position);
  short_launches_.BeginRound(loop_->round());
  *loop_runs_since_ = Clock::now().time_since_epoch().count();
  const bool has_run = task.RunHere(short_launches_);
  *loop_runs_since_ = 0;
  if (!has_run) task.Enqueue();
}

wire::Usage WorkerService::Usage() const {
  wire::Usage usage;
  usage.set_nodes(core_.counts().nodes);
  usage.set_storages(core_.counts().storages);
  wire::DataBytes& data = *usage.mutable_data();
  data.set_from_clients(streams_.received_bytes() + tasks_.put_bytes());
  data.set_to_clients(streams_.sent_bytes());
  data.set_from_workers(transfers_.received_bytes());
  data.set_to_workers(transfers_.sent_bytes());
  data.set_from_workers_shared(transfers_.received_shared_bytes());
  data.set_to_workers_shared(transfers_.sent_shared_bytes());
  data.set_from_clients_shared(streams_.received_shared_bytes());
  data.set_to_clients_shared(streams_.sent_shared_bytes());
  data.set_staged_bytes(staging_->used());
  data.set_staged_bytes_max(staging_->bytes_max());
  data.set_staged_uploads(streams_.upload_count());
  const std::vector<DeviceId>& device_ids = tasks_.environment().device_ids;
  for (size_t i = 0; i < device_ids.size() && i < devices_.size(); ++i) {
    wire::DeviceUsage& device = *usage.add_devices();
    const store::Bytes bytes = storages_.ledger().Device(static_cast<int>(i));
    device.set_device(device_ids[i].number());
    device.set_bytes(bytes.current);
    device.set_peak_bytes(bytes.peak);
    device.set_budget_bytes(options_.memory_budget_bytes);
  }
  return usage;
}

void WorkerService::ReportChanges() {
  for (UploadsMoved& moved : streams_.TakeMoved()) Step(std::move(moved));
  reports_.AddUsageIfChanged();
  // Whole seconds: workers that share a loop report in one round of it.
  loop_->PostAt(std::chrono::floor<std::chrono::seconds>(Clock::now()) + kReportInterval,
                [this] { ReportChanges(); });
}

std::vector<wire::GangMember> WorkerService::LongMembers(Clock::time_point now) const {
  std::vector<wire::GangMember> members = running_->Look(now, kLongGang);
  if (!members.empty()) DescribeWaits(peers_.Waiting(), host_calls_->Waiting(), now, members);
  return members;
}

std::optional<Clock::time_point> WorkerService::LoopRunsSince() const {
  const Clock::rep since = *loop_runs_since_;
  if (since == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(since));
}

std::vector<DeviceThread::Call> WorkerService::Calls() const {
  std::vector<DeviceThread::Call> calls;
  for (const auto& device : devices_) calls.push_back(device->call());
  return calls;
}

absl::Status WorkerService::Shutdown(std::chrono::milliseconds limit) {
  auto deadline = Clock::now() + limit;
  transfers_.Stop();
  for (const auto& callers : host_callers_) callers->Abort();
  host_calls_->Stop(absl::UnavailableError("The worker is shutting down."));
  loop_->Post([this] {
    staging_->Close();
    peers_.Close();
    streams_.CloseAll();
    // Wakes device threads that wait for a shard.
    wire::Failure ends =
        wire::MakeFailure(absl::StatusCode::kUnavailable, "The worker is shutting down.");
    Step(Stopping{std::move(ends)});
  });
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->Stop(deadline)) continue;
    return absl::DeadlineExceededError(absl::StrCat("Local device ", i, " of ",
                                                    options_.identity.name,
                                                    " is stuck in a program and does not end."));
  }
  executables_.Stop();
  loop_->Stop();
  running_->Clear();
  core_.Clear();
  if (callbacks_->WaitIdle(deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("The device runtime of ", options_.identity.name,
                                                  " still owes callbacks and does not end."));
}

}  // namespace gangway::worker
