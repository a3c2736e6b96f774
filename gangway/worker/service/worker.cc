// Implementation of worker.h.
#include "gangway/worker/service/worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

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
#include "gangway/worker/service/idle_watch.h"
#include "gangway/worker/service/stuck_watch.h"
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

absl::StatusOr<std::unique_ptr<device::Backend>> OpenBackend(const WorkerOptions& options) {
  absl::StatusOr<std::unique_ptr<device::Backend>> backend;
  if (options.open_backend) {
    backend = options.open_backend();
  } else if (options.sim) {
    backend = device::OpenSim({.device_count = options.device_count});
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
  if ((*backend)->capabilities().collectives_block_threads && !options.open_backend) {
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

// The link to the scheduler. Send is thread-safe: one lock covers the sequence number and the
// position in the stream.
class ControlLink {
 public:
  ControlLink(Incarnation incarnation, StopFlag& stop) : incarnation_(incarnation), stop_(stop) {}

  // Nothing is sent before `hello`.
  void Set(std::shared_ptr<transport::Link> link, wire::Frame hello) {
    Heard();
    MutexLock lock(mutex_);
    link_ = std::move(link);
    // The mutex is held in every call of the sender.
    auto stamp = [this](wire::Frame& frame) GANGWAY_NO_ANALYSIS {
      frame.set_epoch(epoch_);
      frame.set_incarnation(incarnation_.number());
      frame.set_sequence(++sequence_);
    };
    sender_ =
        std::make_unique<transport::PacedSender>(link_, stamp, transport::PacedSender::Options());
    StopUnless(sender_->Send(std::move(hello)));
  }

  // Restarts the silence timer: the scheduler sent a message, or the link is new.
  void Heard() { heard_.store(Clock::now(), std::memory_order_relaxed); }

  // Ends the worker if the scheduler has been silent for `limit`.
  void CheckSilence(std::chrono::milliseconds limit, const std::string& address) {
    if (Clock::now() - heard_.load(std::memory_order_relaxed) < limit) return;
    stop_.Stop(absl::UnavailableError(
        absl::StrCat("Nothing came from the scheduler at ", address, " for ", limit.count(),
                     " ms: it is stopped, its host is gone, or the network is cut.")));
  }

  void SetEpoch(uint64_t epoch) {
    MutexLock lock(mutex_);
    epoch_ = epoch;
  }

  void Send(wire::Frame frame) {
    MutexLock lock(mutex_);
    if (link_ == nullptr) return;
    StopUnless(frame.has_heartbeat() ? sender_->SendNow(std::move(frame))
                                     : sender_->Send(std::move(frame)));
  }

  void OnWritable() {
    MutexLock lock(mutex_);
    if (link_ != nullptr) StopUnless(sender_->OnWritable());
  }

  void Close() {
    std::shared_ptr<transport::Link> link;
    {
      MutexLock lock(mutex_);
      link = std::exchange(link_, nullptr);
    }
    if (link != nullptr) link->Close(absl::CancelledError("The worker is shutting down."));
  }

 private:
  void StopUnless(const absl::Status& sent) {
    if (sent.ok()) return;
    stop_.Stop(absl::UnavailableError(
        absl::StrCat("The link to the scheduler is gone, it takes no more messages: ",
                     std::string(sent.message()))));
  }

  const Incarnation incarnation_;
  StopFlag& stop_;
  std::atomic<Clock::time_point> heard_{Clock::now()};
  Mutex mutex_;
  std::shared_ptr<transport::Link> link_ GANGWAY_GUARDED_BY(mutex_);
  std::unique_ptr<transport::PacedSender> sender_ GANGWAY_GUARDED_BY(mutex_);  // on link_
  uint64_t epoch_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t sequence_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

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
  worker.set_collectives_take_turns(backend.capabilities().collectives_take_turns);
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
// checks for those of the scheduler, until `stop`. Does nothing that blocks.
void BeatUntilStopped(const WorkerOptions& options, WorkerService& service, ControlLink& link,
                      StopFlag& stop) {
  StuckWatch watch(options.stuck_after);
  CallbackLog callbacks;
  IdleWatch idle(kHeapIdleMax);
  auto last = Clock::now();
  auto leave_by = StuckWatch::Time::max();
  while (!stop.WaitFor(options.heartbeat_interval)) {
    const auto now = Clock::now();
    if (stop.TakeLeave()) {
      spdlog::info("told to end: finishing its work within {} ms", options.leave_limit.count());
      wire::Frame leaving;
      leaving.mutable_report_batch()->add_reports()->mutable_leaving();
      link.Send(std::move(leaving));
      leave_by = now + options.leave_limit;
    }
    if (now > leave_by) {
      spdlog::warn("ending with work unfinished, {} ms after it was told to end",
                   options.leave_limit.count());
      return stop.Stop();
    }
    if (now - last > options.heartbeat_interval + kPaused) link.Heard();  // could not receive any
    last = now;
    if (auto standing = service.StandingGang(now, kStandingMax))
      return EndFor(*standing, link, stop);
    if (auto request = service.EndRequest()) return EndFor(*request, link, stop);
    if (service.LoopRunsProgram()) link.Heard();
    link.CheckSilence(options.scheduler_silence_max, options.scheduler_address);
    wire::Frame beat;
    beat.mutable_heartbeat()->set_time_ns(now.time_since_epoch().count());
    const std::vector<DeviceThread::Call> calls = service.Calls();
    for (wire::GangMember& member : service.LongMembers(now))
      *beat.mutable_heartbeat()->add_members() = std::move(member);
    const std::map<int, HostCalls::Caller> held = service.WaitingForClients();
    for (const auto& [device, caller] : held) {
      wire::HeldDevice& each = *beat.mutable_heartbeat()->add_held();
      each.set_device(static_cast<uint32_t>(device));
      each.set_gang(caller.gang.number());
    }
    // A device that waits in a collective is not stuck.
    const std::map<int, collective::Waiting> waits = service.WaitingForMembers();
    for (const StuckCall& call : watch.Look(calls, now)) {
      if (waits.contains(static_cast<int>(call.device))) continue;
      if (callbacks.Explains(call, held)) continue;
      wire::StuckDevice& stuck = *beat.mutable_heartbeat()->add_stuck();
      stuck.set_device(call.device);
      stuck.set_gang(call.gang.number());
      stuck.set_for_ms(call.duration.count());
    }
    link.Send(std::move(beat));
    if (idle.Look(calls, now) && GetHeapUse().kept_bytes > 0) ReleaseHeap(kReleasedPerBeat);
  }
}

ServiceOptions MakeServiceOptions(const WorkerOptions& options, const device::Backend& backend,
                                  StopFlag& stop) {
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
          .on_left = [&stop] { stop.Stop(); }};
}

absl::StatusOr<std::shared_ptr<transport::Link>> ConnectScheduler(
    const WorkerOptions& options, transport::Transport& control,
    const transport::LinkEvents& events, StopFlag& stop) {
  auto deadline = Clock::now() + options.connect_limit;
  while (true) {
    auto link = control.Connect(options.scheduler_address, transport::JoinPieces(events),
                                std::chrono::milliseconds(1000), transport::kBatchLink);
    if (link.ok())
      GANGWAY_RETURN_IF_ERROR(transport::CheckControls((*link)->peer(), options.scheduler_address));
    if (link.ok() || Clock::now() >= deadline) return link;
    // The scheduler may still be starting.
    if (stop.WaitFor(std::chrono::milliseconds(100)) || stop.leaving())
      return absl::CancelledError("The worker was told to end.");
  }
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
  const ServiceOptions service_options = MakeServiceOptions(options, *backend, stop);
  const std::string& name = service_options.identity.name;
  Incarnation incarnation = service_options.identity.incarnation;
  ControlLink link(incarnation, stop);
  auto loop = std::make_shared<EventLoop>("worker");
  WorkerService service(service_options, loop, backend.get(), &data,
                        [&link](wire::Frame frame) { link.Send(std::move(frame)); });
  auto listener = data.Listen(options.data_listen_address,
                              [&service](std::shared_ptr<transport::Link> accepted) {
                                return service.AcceptData(std::move(accepted));
                              },
                              {.queue_bytes_max = kDataQueueBytes});
  if (!listener.ok()) stop.Stop(listener.status());

  transport::LinkEvents events{.executor = loop.get(),
                               .on_frame =
                                   [&](wire::Frame frame) {
                                     OnControlFrame(std::move(frame), options,
                                                    service_options.identity, link, service, stop);
                                   },
                               .on_writable = [&link] { link.OnWritable(); },
                               .on_closed =
                                   [&](const absl::Status& why) {
                                     stop.Stop(absl::UnavailableError(absl::StrCat(
                                         "The link to the scheduler at ", options.scheduler_address,
                                         " is gone: ", std::string(why.message()))));
                                   }};
  if (listener.ok()) {
    auto connected = ConnectScheduler(options, control, events, stop);
    if (!connected.ok()) stop.Stop(connected.status());
    if (connected.ok()) {
      link.Set(*std::move(connected),
               MakeHello(options, service_options, *backend, (*listener)->address(),
                         service.collectives_socket()));
      spdlog::info("{} incarnation {} registers {} {} devices with {}", name, incarnation.number(),
                   options.device_count, backend->capabilities().platform,
                   options.scheduler_address);
    }
  }
  BeatUntilStopped(options, service, link, stop);

  absl::Status reason = stop.reason();
  if (!reason.ok()) spdlog::error("{} ends: {}", name, std::string(reason.message()));
  link.Close();
  if (listener.ok()) listener->reset();
  const bool is_hopeless = service.EndRequest().has_value() ||
                           service.StandingGang(Clock::now(), kStandingMax).has_value();
  const auto limit = is_hopeless ? std::chrono::milliseconds(0) : kShutdownLimit;
  if (absl::Status ended = service.Shutdown(limit); !ended.ok()) {
    spdlog::critical("{} Ending the process.", std::string(ended.message()));
    if (options.end_process) options.end_process();
    spdlog::shutdown();
    std::_Exit(kStuckExitCode);
  }
  return reason;
}

}  // namespace gangway::worker
