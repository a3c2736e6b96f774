// Implementation of worker.h.
#include "gangway/worker/service/worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/heap.h"
#include "gangway/base/host_memory.h"
#include "gangway/base/lasting_error.h"
#include "gangway/base/random.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/device/pjrt/simulated_work.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/transport/server_role.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/trace.h"
#include "gangway/wire/version.h"
#include "gangway/worker/service/control_link.h"
#include "gangway/worker/service/device/idle_watch.h"
#include "gangway/worker/service/device/stuck_watch.h"
#include "gangway/worker/service/shared_by_workers.h"
#include "gangway/worker/service/worker_service.h"

namespace gangway::worker {
namespace {

constexpr int kStuckExitCode = 70;  // EX_SOFTWARE
constexpr std::chrono::seconds kCollectiveTimeout{
    300};  // XLA CPU then ends the process, which is restarted
constexpr std::chrono::seconds kHeapIdleMax{10};  // blocks that the heap keeps are then given back
// How long members of a gang may stand in a collective of the runtime after another member has failed. Then the worker
// ends, because only that ends their wait.
constexpr std::chrono::seconds kStandingMax{5};
constexpr std::chrono::seconds kShutdownLimit{5};
constexpr std::chrono::milliseconds kToldMax{
    1000};  // until the scheduler knows why the worker ends
constexpr std::chrono::milliseconds kHeardMax{250};  // until clients know
constexpr std::chrono::seconds kPaused{1};  // a heartbeat this late: the process was suspended
constexpr uint64_t kReleasedPerBeat = uint64_t{256} << 20;  // some 25 ms of work
// Queued on one data stream. A small shard waits for what is queued before it.
constexpr size_t kDataQueueBytes = size_t{4} << 20;

// XLA reads its flags once, when the plugin is loaded. A flag that the user has set is kept.
void SetCollectiveTimeout() {
  constexpr char kFlag[] = "--xla_cpu_collective_call_terminate_timeout_seconds=";
  const char* set = std::getenv("XLA_FLAGS");
  std::string flags = set == nullptr ? "" : set;
  if (flags.find(kFlag) != std::string::npos) return;
  absl::StrAppend(&flags, flags.empty() ? "" : " ", kFlag, kCollectiveTimeout.count());
  setenv("XLA_FLAGS", flags.c_str(), 1);
}

// Programs name slow and failing devices by their number in the island.
std::unique_ptr<device::Backend> OpenSimulated(const WorkerOptions& options) {
  return device::OpenSim({.device_count = options.device_count,
                          .first_device = static_cast<int>(options.index) * options.device_count});
}

absl::StatusOr<std::unique_ptr<device::Backend>> OpenBackend(const WorkerOptions& options) {
  absl::StatusOr<std::unique_ptr<device::Backend>> backend;
  if (options.open_backend) {
    backend = options.open_backend();
  } else {
    SetCollectiveTimeout();
    backend = device::OpenPjrt({.plugin_path = options.plugin_path,
                                .device_count = options.device_count,
                                .memory = options.device_memory,
                                .nproc = options.thread_pool_size});
    if (backend.ok()) {
      device::OfferHandlers(
          **backend, std::vector{device::LinalgHandlers((*backend)->capabilities()),
                                 device::SimulatedWorkHandlers(), device::HostCallHandlers(),
                                 device::PositionHandlers(), collective::CollectiveHandlers()});
    }
  }
  GANGWAY_RETURN_IF_ERROR(backend);
  if (static_cast<int>((*backend)->devices().size()) != options.device_count) {
    return Lasting(absl::FailedPreconditionError(
        absl::StrCat("The device runtime has ", (*backend)->devices().size(), " devices, but ",
                     options.device_count, " were declared for this worker; make the two agree.")));
  }
  if ((*backend)->capabilities().collectives.block_threads && !options.open_backend) {
    auto enough = CheckThreadPool(options.thread_pool_size, options.device_count,
                                  static_cast<int>(std::thread::hardware_concurrency()));
    if (!enough.ok()) return Lasting(std::move(enough));
  }
  return backend;
}

// The budget of each device; 0: no limit.
uint64_t DeviceBytes(const WorkerOptions& options, const device::Backend& backend) {
  uint64_t said = UINT64_MAX;
  for (const device::DeviceInfo& device : backend.devices())
    said = std::min(said, device.memory_bytes);
  const uint64_t own = backend.devices().empty() ? 0 : said;
  if (options.memory_budget_bytes) {
    const uint64_t wanted = *options.memory_budget_bytes;
    return own == 0 || wanted == 0 ? wanted : std::min(wanted, own);
  }
  if (own != 0 || backend.capabilities().platform != "cpu") return own;
  return HostMemoryBytes() / 2 / static_cast<uint64_t>(std::max(options.device_count, 1));
}

Incarnation NewIncarnation() { return Incarnation((RandomBits() >> 1) | 1); }  // 63 bits, never 0

void ToWire(const device::Attribute& attribute, wire::PluginAttribute& to) {
  to.set_name(attribute.name);
  if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    to.set_text(wire::ValidUtf8(*text));
  } else if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    to.set_number(*number);
  } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute.value)) {
    to.mutable_numbers()->mutable_values()->Add(numbers->begin(), numbers->end());
  } else if (const auto* real = std::get_if<float>(&attribute.value)) {
    to.set_real(*real);
  } else {
    to.set_flag(std::get<bool>(attribute.value));
  }
}

wire::Frame MakeHello(const WorkerOptions& options, const ServiceOptions& service,
                      const device::Backend& backend, const std::string& data_address,
                      const wire::DescriptorSocket& collectives) {
  wire::Frame frame;
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_role(wire::ROLE_WORKER);
  hello.set_name(service.identity.name);
  hello.set_process_id(ProcessId());
  hello.set_token(options.token);
  wire::WorkerRegistration& worker = *hello.mutable_worker();
  worker.set_island(options.island);
  worker.set_index(options.index);
  worker.set_incarnation(service.identity.incarnation.number());
  worker.set_host(options.host);
  worker.set_data_address(
      options.data_host.empty()
          ? data_address
          : absl::StrCat(options.data_host, data_address.substr(data_address.rfind(':'))));
  worker.set_platform(backend.capabilities().platform);
  worker.set_platform_version(backend.capabilities().platform_version);
  for (const device::Attribute& attribute : backend.capabilities().attributes)
    ToWire(attribute, *worker.add_attributes());
  worker.set_device_count(backend.devices().size());
  if (!backend.devices().empty()) {
    worker.set_device_kind(backend.devices()[0].kind);
    for (const device::Attribute& attribute : backend.devices()[0].attributes)
      ToWire(attribute, *worker.add_device_attributes());
  }
  worker.set_device_bytes(service.memory_budget_bytes);
  worker.set_collectives_take_turns(backend.capabilities().collectives.take_turns);
  if (!collectives.name().empty()) *worker.mutable_collectives() = collectives;
  return frame;
}

// Handles a frame of the scheduler, on the loop.
void OnControlFrame(wire::Frame frame, const WorkerOptions& options, const Identity& identity,
                    ControlLink& link, WorkerService& service, StopFlag& stop) {
  link.Heard();
  if (frame.incarnation() != 0 && Incarnation(frame.incarnation()) != identity.incarnation) {
    return spdlog::warn("A message for incarnation {} arrived at {} and was dropped",
                        frame.incarnation(), identity.incarnation.number());
  }
  if (frame.has_hello_reply()) {
    link.SetEpoch(frame.hello_reply().epoch());
    if (frame.hello_reply().isolated()) service.Isolate();
    service.SetEnded(frame.hello_reply().ended_sessions());
    service.SetDataKey(frame.hello_reply().data_key());
    if (frame.hello_reply().latency_request() && options.latency_request)
      service.UseLatencyRequest();
    if (frame.hello_reply().has_failure()) stop.Stop(wire::ToStatus(frame.hello_reply().failure()));
    return;
  }
  if (frame.has_trace_request() && options.is_guest)
    return link.Send(wire::NoTraceFrame(frame.trace_request(), identity.name));
  if (frame.has_trace_request()) {
    for (wire::Frame& reply : wire::TraceFrames(frame.trace_request(), identity.name))
      link.Send(std::move(reply));
    return;
  }
  if (frame.has_island_batch()) service.OnBatch(std::move(*frame.mutable_island_batch()));
}

// Only the end of the process ends what its devices run. The scheduler learns why, and closes the link. Clients hear it
// from there before they see their data streams end, which would name no reason.
void EndFor(const wire::Failure& why, ControlLink& link, StopFlag& stop) {
  wire::Frame frame;
  *frame.mutable_report_batch()->add_reports()->mutable_ending() = why;
  link.Send(std::move(frame));
  (void)stop.WaitFor(kToldMax);
  stop.Stop(wire::ToStatus(why));
  StopFlag pause;
  (void)pause.WaitFor(kHeardMax);
}

// Names the clients that devices wait for, each gang once. Such a device is not stuck: the limit of host callbacks, or
// the end of the client, ends its wait.
class CallbackLog {
 public:
  // Whether the device of `call` waits for a client.
  bool Explains(const StuckCall& call, const std::map<int, HostCalls::Caller>& waiting) {
    auto found = waiting.find(static_cast<int>(call.device));
    if (found == waiting.end()) return false;
    const HostCalls::Caller& caller = found->second;
    if (std::exchange(named_[caller.local_device], caller.gang) != caller.gang) {
      spdlog::warn(
          "device {} has waited for at least {} ms for client {} (session {}) to return from a "
          "host "
          "callback of gang {}",
          caller.device.number(), call.duration.count(), caller.client, caller.session.number(),
          caller.gang.number());
    }
    return true;
  }

 private:
  std::map<int, Ordinal> named_;
};

// Sends heartbeats, which name stuck devices, devices that wait for clients, and what members of long gangs do, and
// checks for those of the scheduler. Does nothing that blocks, unless the worker ends.
class Beats {
 public:
  // All outlive this.
  Beats(const WorkerOptions& options, WorkerService& service, ControlLink& link, StopFlag& stop)
      : options_(options),
        service_(service),
        link_(link),
        stop_(stop),
        watch_(options.stuck_after),
        idle_(kHeapIdleMax) {}

  // Each heartbeat_interval, until `stop`.
  void Beat(Clock::time_point now) {
    if (stop_.TakeLeave()) Leave(now);
    if (now > leave_by_) {
      spdlog::warn("ending with work unfinished, {} ms after it was told to end",
                   options_.leave_limit.count());
      return stop_.Stop();
    }
    if (now - last_ > options_.heartbeat_interval + kPaused) {
      link_.Heard();  // could not receive any
      resumed_ = now;
    }
    last_ = now;
    if (auto standing = service_.StandingGang(now, kStandingMax))
      return EndFor(*standing, link_, stop_);
    if (auto request = service_.EndRequest()) return EndFor(*request, link_, stop_);
    if (LoopIsHeld(now)) return EndFor(LoopHeld(), link_, stop_);
    if (service_.LoopRunsSince()) link_.Heard();
    link_.CheckSilence(options_.scheduler_silence_max, options_.scheduler_address);
    const std::vector<DeviceThread::Call> calls = service_.Calls();
    SendBeat(MakeBeat(now, calls));
    if (!options_.is_guest && idle_.Look(calls, now) && GetHeapUse().kept_bytes > 0)
      ReleaseHeap(kReleasedPerBeat);
  }

 private:
  // A guest that has nothing to tell sends every second heartbeat only: the first worker of its process sends as many
  // as any other, from the same thread.
  static constexpr int kGuestBeats = 2;

  void SendBeat(wire::Frame frame) {
    const wire::Heartbeat& beat = frame.heartbeat();
    const bool tells = beat.members_size() + beat.held_size() + beat.stuck_size() > 0;
    const bool told = std::exchange(told_, tells);
    if (options_.is_guest && !tells && !told && ++unsent_ < kGuestBeats) return;
    unsent_ = 0;
    link_.Send(std::move(frame));
  }

  // Whether one program has held the event loop for too long. A process that stood still does not count that time.
  bool LoopIsHeld(Clock::time_point now) const {
    const auto since = service_.LoopRunsSince();
    return since && now - std::max(*since, resumed_) >= options_.loop_runs_max;
  }

  void Leave(Clock::time_point now) {
    spdlog::info("told to end: finishing its work within {} ms", options_.leave_limit.count());
    wire::Frame leaving;
    leaving.mutable_report_batch()->add_reports()->mutable_leaving();
    link_.Send(std::move(leaving));
    leave_by_ = now + options_.leave_limit;
  }

  // Neither the scheduler's messages nor other sessions' work reach a loop that does not return.
  wire::Failure LoopHeld() const {
    wire::Failure failure = wire::MakeFailure(
        absl::StatusCode::kDeadlineExceeded,
        absl::StrCat("a program that was known to be short has held the worker's event loop for ",
                     options_.loop_runs_max.count(), " ms"),
        "This is a bug of Gangway: report it with the program.");
    failure.set_worker(absl::StrCat("island", options_.island, "/worker", options_.index));
    return failure;
  }

  wire::Frame MakeBeat(Clock::time_point now, const std::vector<DeviceThread::Call>& calls) {
    wire::Frame frame;
    wire::Heartbeat& beat = *frame.mutable_heartbeat();
    beat.set_time_ns(now.time_since_epoch().count());
    for (wire::GangMember& member : service_.LongMembers(now))
      *beat.add_members() = std::move(member);
    const std::map<int, HostCalls::Caller> held = service_.WaitingForClients();
    for (const auto& [device, caller] : held) {
      wire::HeldDevice& each = *beat.add_held();
      each.set_device(static_cast<uint32_t>(device));
      each.set_gang(caller.gang.number());
    }
    // A device that waits in a collective is not stuck.
    const std::map<int, collective::Waiting> waits = service_.WaitingForMembers();
    for (const StuckCall& call : watch_.Look(calls, now)) {
      if (waits.contains(static_cast<int>(call.device))) continue;
      if (callbacks_.Explains(call, held)) continue;
      wire::StuckDevice& stuck = *beat.add_stuck();
      stuck.set_device(call.device);
      stuck.set_gang(call.gang.number());
      stuck.set_for_ms(call.duration.count());
    }
    return frame;
  }

  const WorkerOptions& options_;
  WorkerService& service_;
  ControlLink& link_;
  StopFlag& stop_;
  StuckWatch watch_;
  CallbackLog callbacks_;
  IdleWatch idle_;
  bool told_ = false;  // the last heartbeat told of devices
  int unsent_ = 0;     // since the last heartbeat that was sent
  Clock::time_point last_ = Clock::now();
  Clock::time_point resumed_ = last_;  // when it last did so after it stood still, or began
  Clock::time_point leave_by_ = StuckWatch::Time::max();
};

ServiceOptions MakeServiceOptions(const WorkerOptions& options, const device::Backend& backend,
                                  StopFlag& stop, SharedByWorkers* shared) {
  return {.identity = {.name = absl::StrCat("island", options.island, "/worker", options.index),
                       .incarnation = NewIncarnation(),
                       .device_count = options.device_count},
          .memory_budget_bytes = DeviceBytes(options, backend),
          .host_bytes_max = options.host_bytes_max.value_or(HostMemoryBytes() / 4),
          .wait_limit = options.wait_limit,
          .transfer_silence_max = options.transfer_silence_max,
          .callback_limit = options.callback_limit,
          .shared_bytes_max = options.shared_bytes_max.value_or(HostMemoryBytes() / 4 * 3),
          .shared_shard_min = options.shared_shard_min,
          .heap = options.heap,
          .island = options.island,
          .index = options.index,
          .host = options.host,
          .on_left = [&stop] { stop.Stop(); },
          .shared = shared};
}

absl::StatusOr<std::shared_ptr<transport::Link>> ConnectScheduler(
    const WorkerOptions& options, transport::Transport& control,
    const transport::LinkEvents& events, StopFlag& stop, StopFlag& process) {
  auto deadline = Clock::now() + options.connect_limit;
  while (true) {
    auto link = control.Connect(options.scheduler_address, transport::JoinPieces(events),
                                std::chrono::milliseconds(1000), transport::kBatchLink);
    if (link.ok())
      GANGWAY_RETURN_IF_ERROR(transport::CheckControls((*link)->peer(), options.scheduler_address));
    if (link.ok() || Clock::now() >= deadline) return link;
    // The scheduler may still be starting.
    if (stop.WaitFor(std::chrono::milliseconds(100)) || stop.leaving() || process.leaving() ||
        process.WaitFor(std::chrono::milliseconds(0)))
      return absl::CancelledError("The worker was told to end.");
  }
}

// A worker from its registration to its end.
class WorkerLife {
 public:
  // `options`, `data`, `stop` and `shared` outlive this. `shared`: null for a worker that is alone in its process.
  WorkerLife(const WorkerOptions& options, std::unique_ptr<device::Backend> backend,
             transport::Transport& data, StopFlag& stop, SharedByWorkers* shared)
      : options_(options),
        stop_(stop),
        backend_(std::move(backend)),
        service_options_(MakeServiceOptions(options, *backend_, stop, shared)),
        link_(service_options_.identity.incarnation, stop),
        loop_(shared != nullptr ? shared->loop : std::make_shared<EventLoop>("worker")),
        service_(service_options_, loop_, backend_.get(), &data,
                 [this](wire::Frame frame) { link_.Send(std::move(frame)); }),
        beats_(options_, service_, link_, stop_) {}

  // An error is in `stop`. `process`: the flag of the process, which may be that of this worker.
  void Register(transport::Transport& control, transport::Transport& data, StopFlag& process) {
    auto listener = data.Listen(options_.data_listen_address,
                                [this](std::shared_ptr<transport::Link> accepted) {
                                  return service_.AcceptData(std::move(accepted));
                                },
                                {.queue_bytes_max = kDataQueueBytes});
    if (!listener.ok()) return stop_.Stop(listener.status());
    listener_ = *std::move(listener);
    auto connected = ConnectScheduler(options_, control, ControlEvents(), stop_, process);
    if (!connected.ok()) return stop_.Stop(connected.status());
    link_.Set(*std::move(connected),
              MakeHello(options_, service_options_, *backend_, listener_->address(),
                        service_.collectives_socket()));
    spdlog::info("{} incarnation {} registers {} {} devices with {}", name(),
                 service_options_.identity.incarnation.number(), options_.device_count,
                 backend_->capabilities().platform, options_.scheduler_address);
  }

  void Beat(Clock::time_point now) { beats_.Beat(now); }

  // Leaves the cluster. May be called again.
  void Close() {
    link_.Close();
    listener_ = nullptr;
  }

  // Of a worker with a loop of its own, after `stop` is set: returns its reason, or ends the process.
  absl::Status End() {
    absl::Status reason = stop_.reason();
    if (!reason.ok()) spdlog::error("{} ends: {}", name(), std::string(reason.message()));
    Close();
    const bool is_hopeless = service_.EndRequest().has_value() ||
                             service_.StandingGang(Clock::now(), kStandingMax).has_value();
    const auto limit = is_hopeless ? std::chrono::milliseconds(0) : kShutdownLimit;
    if (absl::Status ended = service_.Shutdown(limit); !ended.ok()) {
      spdlog::critical("{} Ending the process.", std::string(ended.message()));
      if (options_.end_process) options_.end_process();
      spdlog::shutdown();
      std::_Exit(kStuckExitCode);
    }
    return reason;
  }

  const std::string& name() const { return service_options_.identity.name; }

 private:
  transport::LinkEvents ControlEvents() {
    return {.executor = loop_.get(),
            .on_frame =
                [this](wire::Frame frame) {
                  OnControlFrame(std::move(frame), options_, service_options_.identity, link_,
                                 service_, stop_);
                },
            .on_writable = [this] { link_.OnWritable(); },
            .on_closed =
                [this](const absl::Status& why) {
                  stop_.Stop(absl::UnavailableError(
                      absl::StrCat("The link to the scheduler at ", options_.scheduler_address,
                                   " is gone: ", std::string(why.message()))));
                }};
  }

  const WorkerOptions& options_;
  StopFlag& stop_;
  const std::unique_ptr<device::Backend> backend_;
  const ServiceOptions service_options_;
  ControlLink link_;
  const std::shared_ptr<EventLoop> loop_;
  WorkerService service_;
  std::unique_ptr<transport::Listener> listener_;
  Beats beats_;
};

// One of those that share a process. `index`: its number among them.
struct SimulatedWorker {
  SimulatedWorker(const WorkerOptions& first, uint32_t index, transport::Transport& data,
                  SharedByWorkers* shared)
      : options(OptionsOf(first, index)),
        life(options, OpenSimulated(options), data, stop, shared) {}

  static WorkerOptions OptionsOf(const WorkerOptions& first, uint32_t index) {
    WorkerOptions options = first;
    options.index += index;
    options.is_guest = index > 0;
    return options;
  }

  const WorkerOptions options;
  StopFlag stop;
  WorkerLife life;
};

// One that has left is closed; the failure of one is the end of all, since they share what failed.
void BeatAll(const std::vector<std::unique_ptr<SimulatedWorker>>& workers, StopFlag& stop) {
  const auto now = Clock::now();
  const bool leave = stop.TakeLeave();
  bool all_left = true;
  for (const auto& worker : workers) {
    if (leave) worker->stop.Leave();
    if (!worker->stop.WaitFor(std::chrono::milliseconds(0))) {
      worker->life.Beat(now);
      all_left = false;
      continue;
    }
    worker->life.Close();
    const absl::Status reason = worker->stop.reason();
    if (reason.ok()) continue;
    spdlog::error("{} ends, and all {} workers of this process with it: {}", worker->life.name(),
                  workers.size(), std::string(reason.message()));
    return stop.Stop(reason);
  }
  if (all_left) stop.Stop();
}

}  // namespace

void StopFlag::Stop(absl::Status reason) {
  MutexLock lock(mutex_);
  if (!reason_) reason_ = std::move(reason);
  changed_.NotifyAll();
}

bool StopFlag::WaitFor(std::chrono::milliseconds limit) {
  MutexLock lock(mutex_);
  changed_.WaitFor(mutex_, limit, [this]() GANGWAY_NO_ANALYSIS {
    return reason_.has_value() || (leaving_ && !leave_taken_);
  });
  return reason_.has_value();
}

void StopFlag::Leave() {
  MutexLock lock(mutex_);
  leaving_ = true;
  changed_.NotifyAll();
}

bool StopFlag::leaving() const {
  MutexLock lock(mutex_);
  return leaving_;
}

bool StopFlag::TakeLeave() {
  MutexLock lock(mutex_);
  return leaving_ && !std::exchange(leave_taken_, true);
}

absl::Status StopFlag::reason() const {
  MutexLock lock(mutex_);
  return reason_.value_or(absl::OkStatus());
}

absl::Status CheckThreadPool(int threads, int devices, int cores) {
  const int least = devices + cores;
  if (threads >= least) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a thread pool of ", threads, " is too small for ", devices, " devices on ", cores,
      " cores: devices that wait in collectives block a thread each, and programs could wait for "
      "one another for ever. Start the cluster with at least ",
      least, " threads (--threads, or `threads` in the cluster's file), or with fewer devices."));
}

absl::Status RunWorker(const WorkerOptions& options, transport::Transport& control,
                       transport::Transport& data, StopFlag& stop) {
  if (options.heap_bytes_max > 0) LimitHeap(options.heap_bytes_max);
  GANGWAY_ASSIGN_OR_RETURN(std::unique_ptr<device::Backend> backend, OpenBackend(options));
  WorkerLife worker(options, std::move(backend), data, stop, /*shared=*/nullptr);
  worker.Register(control, data, stop);
  while (!stop.WaitFor(options.heartbeat_interval)) worker.Beat(Clock::now());
  return worker.End();
}

void RunSimulatedWorkers(const WorkerOptions& first, uint32_t count, transport::Transport& control,
                         transport::Transport& data, StopFlag& stop) {
  if (first.heap_bytes_max > 0) LimitHeap(first.heap_bytes_max);
  SharedByWorkers shared{.devices =
                             DevicePool(std::max(2U, std::thread::hardware_concurrency() / 2))};
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  auto last_beat = Clock::now();
  for (uint32_t i = 0; i < count && !stop.leaving() && !stop.WaitFor({}); ++i) {
    workers.push_back(std::make_unique<SimulatedWorker>(first, i, data, &shared));
    workers.back()->life.Register(control, data, stop);
    if (Clock::now() - last_beat < first.heartbeat_interval) continue;
    BeatAll(workers, stop);  // so that those that are registered are not silent
    last_beat = Clock::now();
  }
  while (!stop.WaitFor(first.heartbeat_interval)) BeatAll(workers, stop);
  for (const auto& worker : workers) worker->life.Close();
  first.end_process();
  GANGWAY_CHECK(false, "end_process has returned");
}

}  // namespace gangway::worker
