// Implementation of roles.h.
#include "gangway/cli/roles.h"

#include <pthread.h>
#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/heap.h"
#include "gangway/base/host_memory.h"
#include "gangway/base/lasting_error.h"
#include "gangway/base/log.h"
#include "gangway/base/mutex.h"
#include "gangway/base/shared_heap.h"
#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/cli/announcement.h"
#include "gangway/cli/front_door.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/metrics.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/status_text.h"
#include "gangway/cli/tool_link.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/compiler/compiler.h"
#include "gangway/compiler/confinement.h"
#include "gangway/device/handler_group.h"
#include "gangway/device/pjrt/host_call.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/device/pjrt/position_call.h"
#include "gangway/device/pjrt/simulated_work.h"
#include "gangway/scheduler/service/scheduler_service.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/local/local.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/worker/service/worker.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::milliseconds kReadyCheckInterval{50};
constexpr std::chrono::seconds kReadyCheckLimit{5};
constexpr std::chrono::seconds kDrainLimit{3};  // below the supervisor's stop_limit for the head
constexpr uint64_t kHeapBesideClients = uint64_t{256} << 20;  // of the head: arrays' books, traces
const int kEndWatch = SIGRTMIN;  // sent by a LeaveWatch to its own thread
constexpr std::chrono::milliseconds kRetryFirst{100}, kRetryMax{5000};
constexpr std::chrono::seconds kSchedulerConnectLimit{30};
constexpr std::chrono::hours kForever{24};         // the wait is then repeated
constexpr int kConverterDevices = 2;               // of the runtime that converts programs
constexpr std::chrono::seconds kSessionLimit{90};  // longer than a remote controller's own limit

// %* of a pattern: the message, in which no name, error or program of others begins a line or steers a terminal.
class ShownMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*when*/,
              spdlog::memory_buf_t& line) override {
    const std::string shown = ShownLines({message.payload.data(), message.payload.size()});
    line.append(shown.data(), shown.data() + shown.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<ShownMessage>();
  }
};

// To be called before any other thread starts: all threads inherit the mask, so that only
// WaitForStop receives the signals.
void BeginRole(const char* name) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kEndWatch);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt(name));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %n %L %*");
  spdlog::set_formatter(std::move(formatter));
  spdlog::flush_on(spdlog::level::info);
  SetLogSink([](LogLevel level, const std::string& line) {
    const auto own = level == LogLevel::kInfo    ? spdlog::level::info
                     : level == LogLevel::kError ? spdlog::level::err
                                                 : spdlog::level::warn;
    spdlog::log(own, "{}", line);
  });
}

int WaitForStop() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return IsLasting(status) ? RestartPolicy::kHopeless : 1;
}

// Polls the head as a tool does, and announces the absent processes until all declared ones are up.
class ReadyWatch {
 public:
  ReadyWatch(std::string control_address, Access access)
      : control_address_(std::move(control_address)),
        access_(std::move(access)),
        thread_("gw-ready", [this] { Run(); }) {}
  ~ReadyWatch() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.Join();
  }

 private:
  void Run() {
    auto transport = OpenTransport(access_.tls);
    if (!transport.ok()) return;
    std::string announced;
    while (true) {
      auto status = AskStatus(**transport, control_address_, access_.token, kReadyCheckLimit);
      const std::string absent = status.ok() ? Absent(*status) : "the controller";
      if (absent.empty()) return Announce({.kind = Announcement::Kind::kReady});
      if (absent != announced) Announce({.kind = Announcement::Kind::kWaiting, .text = absent});
      announced = absent;
      MutexLock lock(mutex_);
      if (changed_.WaitFor(mutex_, kReadyCheckInterval,
                           [this]() GANGWAY_NO_ANALYSIS { return stopping_; }))
        return;
    }
  }

  const std::string control_address_;
  const Access access_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

// Null if metrics are off.
absl::StatusOr<std::unique_ptr<MetricsEndpoint>> ServeMetrics(const HeadOptions& options,
                                                              const std::string& tools_address) {
  if (options.metrics_port == 0) return nullptr;
  return MetricsEndpoint::Start(
      options.metrics_port,
      [tools_address, access = options.access]() -> absl::StatusOr<wire::StatusReply> {
        GANGWAY_ASSIGN_OR_RETURN(auto transport, OpenTransport(access.tls));
        return AskStatus(*transport, tools_address, access.token, kReadyCheckLimit);
      });
}

// Waits until the controller, or a worker's scheduler, answers, or until `stop`. Logs the reason
// once, and again when it changes. If the controller rejects the token or the version, that is an
// error, since waiting does not help.
absl::Status AwaitController(const char* name, const char* whom, transport::Transport& transport,
                             const std::string& address, const Access& access,
                             worker::StopFlag& stop) {
  std::string said;
  auto delay = kRetryFirst;
  while (!stop.WaitFor(std::chrono::milliseconds(0)) && !stop.leaving()) {
    absl::Status status = Probe(transport, address, access.token, name, kReadyCheckLimit);
    if (status.ok()) return absl::OkStatus();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const std::string why(ExplainConnection(status, address, access.tls).message());
    if (why != said) spdlog::warn("waiting for {} at {}: {}", whom, address, why);
    said = why;
    if (stop.WaitFor(delay)) break;
    delay = std::min(delay * 2, kRetryMax);
  }
  return absl::OkStatus();
}

// Waits for signals on a thread of its own: the first asks the worker to leave, the second ends it.
class LeaveWatch {
 public:
  explicit LeaveWatch(worker::StopFlag* stop)
      : stop_(stop), thread_("gw-signals", [this] { Run(); }) {}

  // A later signal stays pending, also for the next image of the process; an earlier one is in the
  // flag.
  void End() {
    pthread_kill(thread_.native_handle(), kEndWatch);
    thread_.Join();
  }

 private:
  void Run() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGTERM, SIGINT, kEndWatch}) sigaddset(&signals, signal);
    for (int told = 0; told < 2;) {
      siginfo_t info = {};
      const int signal = sigwaitinfo(&signals, &info);
      if (signal == kEndWatch && info.si_pid == getpid()) return;
      if (signal != SIGTERM && signal != SIGINT) continue;
      if (++told == 1) {
        stop_->Leave();
      } else {
        stop_->Stop();
      }
    }
  }

  worker::StopFlag* const stop_;
  Thread thread_;
};

// A device runtime can be opened only once per process, so a worker that lost its controller
// becomes a new process image: same command, pid and supervisor, but another incarnation.
void StartAfresh() {
  std::vector<std::string> command;
  {
    std::ifstream file("/proc/self/cmdline");  // closed before exec, which would keep it open
    for (std::string word; std::getline(file, word, '\0');) command.push_back(word);
  }
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execv("/proc/self/exe", words.data());
  spdlog::error("cannot restart this process in place: {}", std::strerror(errno));
}

// The exit status of a worker or a scheduler. `stop` has UNAVAILABLE if its scheduler or controller
// is gone.
int ExitStatus(const absl::Status& ended, const worker::StopFlag& stop) {
  if (ended.ok() || stop.leaving()) return 0;
  if (IsLasting(ended)) return RestartPolicy::kHopeless;
  return absl::IsUnavailable(stop.reason()) ? RestartPolicy::kBlameless : 1;
}

// Ends this process; no destructor runs, since a device may be stuck. `returns`: it restarts itself
// if its scheduler or controller is gone.
[[noreturn]] void EndServant(const absl::Status& ended, const worker::StopFlag& stop,
                             bool returns) {
  if (returns && absl::IsUnavailable(ended) && !stop.leaving()) StartAfresh();
  _exit(ExitStatus(ended, stop));
}

// Runs until the controller is lost, or until `stop`, and returns the reason.
absl::Status ServeIsland(const SchedulerRoleOptions& options, const Access& access,
                         transport::Transport& transport, worker::StopFlag& stop) {
  GANGWAY_ASSIGN_OR_RETURN(auto verifiers, ReadVerifiers(options.access));
  const bool supervised = options.when_lost == WhenLost::kEnd;
  scheduler::SchedulerOptions scheduler;
  scheduler.island = options.island;
  scheduler.token = access.token;
  scheduler.remote = true;
  scheduler.latency_request = options.latency_request;
  scheduler.on_event = [supervised](const std::string& event) {
    spdlog::info("{}", event);
    if (supervised) Announce({.kind = Announcement::Kind::kEvent, .text = event});
  };
  scheduler.on_silent = [supervised](uint64_t process_id) {
    if (supervised)
      Announce({.kind = Announcement::Kind::kSilent, .text = absl::StrCat(process_id)});
  };
  scheduler.on_controller_lost = [&stop](const absl::Status& why) {
    stop.Stop(absl::UnavailableError(absl::StrCat("the controller is gone (", why.message(),
                                                  "): this scheduler ends, ",
                                                  "and its island's arrays are lost")));
  };
  EventLoop loop("scheduler");
  auto service = scheduler::SchedulerService::Connect(
      &loop, std::move(scheduler), transport, options.control_address, kSchedulerConnectLimit);
  if (!service.ok()) {
    loop.Stop();
    return service.status();
  }
  auto welcome = [&service](const std::shared_ptr<transport::Link>& link,
                            const wire::Hello& hello) { return (*service)->Welcome(link, hello); };
  auto listener = transport.Listen(
      options.listen_address,
      transport::Greet(&loop, {.token_needed = true, .verifiers = verifiers}, welcome),
      transport::kBatchLink);
  absl::Status ended = listener.status();
  if (listener.ok()) {
    spdlog::info("island {} at {}", options.island, options.listen_address);
    while (!stop.WaitFor(kForever) && !stop.leaving()) continue;
    ended = stop.reason();
    listener->reset();
  }
  loop.Stop();
  return ended;
}

using Serve = std::function<absl::Status(const Access&, transport::Transport&, worker::StopFlag&)>;

// Runs a worker or a scheduler, which serves `whom` at `address`. With `returns`, it first waits
// until `whom` answers, and restarts itself when `whom` is gone; without, a supervisor restarts it.
// Returns only if it could not begin; otherwise the process exits.
int RunServant(const char* name, const AccessFiles& files, bool returns, const char* whom,
               const std::string& address, const Serve& serve) {
  BeginRole(name);
  auto access = ReadAccess(files);
  if (!access.ok()) return Fail(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return Fail(transport.status());
  worker::StopFlag stop;
  LeaveWatch watch(&stop);
  absl::Status ended;
  if (returns) ended = AwaitController(name, whom, **transport, address, *access, stop);
  const bool came = ended.ok() && !stop.leaving() && !stop.WaitFor(std::chrono::milliseconds(0));
  if (came) ended = serve(*access, **transport, stop);
  if (!ended.ok() && !stop.leaving()) Fail(ended);
  transport->reset();
  watch.End();
  EndServant(ended, stop, came && returns);
}

}  // namespace

int RunHeadRole(HeadOptions options, const AccessFiles& files, const std::string& tools_address) {
  BeginRole("head");
  auto access = ReadAccess(files);
  if (!access.ok()) return Fail(access.status());
  options.access = *access;
  auto verifiers = ReadVerifiers(files);
  if (!verifiers.ok()) return Fail(verifiers.status());
  options.verifiers = *std::move(verifiers);
  options.on_event = [](const std::string& event) {
    spdlog::info("{}", event);
    Announce({.kind = Announcement::Kind::kEvent, .text = event});
  };
  options.on_silent = [](uint64_t process_id) {
    Announce({.kind = Announcement::Kind::kSilent, .text = absl::StrCat(process_id)});
  };
  options.on_spare_wanted = [](uint32_t compiler) {
    Announce({.kind = Announcement::Kind::kWanted, .text = absl::StrCat("compiler", compiler)});
  };
  LimitHeap(PlanHead(HostMemoryBytes(), options.memory_bytes) + kHeapBesideClients);
  auto head = Head::Start(options);
  if (!head.ok()) return Fail(head.status());
  auto metrics = ServeMetrics(options, tools_address);
  if (!metrics.ok()) return Fail(metrics.status());
  spdlog::info("front door at {}, control at {}", (*head)->front_door_address(),
               options.control_address);
  Announce({.kind = Announcement::Kind::kListening, .text = tools_address});
  {
    ReadyWatch watch(tools_address, *access);
    WaitForStop();
  }
  (*head)->Drain(kDrainLimit);
  head->reset();
  return 0;
}

namespace {

std::string DataListenAddress(const WorkerRoleOptions& options) {
  if (!options.data_listen_address.empty()) return options.data_listen_address;
  return transport::IsLocalAddress(options.control_address) ? "unix-abstract:" : "127.0.0.1:0";
}

// None: collectives send the bytes to members on other workers of this host.
SharedHeap HeapToShare([[maybe_unused]] const WorkerRoleOptions& options) {
#ifdef GANGWAY_TCMALLOC
  if (options.shared_memory_bytes != 0) {
    auto heap = ShareHeap();
    if (heap.ok()) return *heap;
    spdlog::warn("Other workers cannot read this one's buffers: {}",
                 std::string(heap.status().message()));
  }
#endif
  return {};
}

// What converts programs for another platform's check: the CPU plugin, where it is installed. Null otherwise.
std::unique_ptr<device::Backend> OpenConverter(const device::Backend& backend) {
  if (backend.capabilities().platform == "cpu" || backend.capabilities().platform == "sim")
    return nullptr;  // XLA CPU converts itself, and simulated programs are data
  device::PjrtOptions pjrt;
  pjrt.device_count = kConverterDevices;
  pjrt.nproc = 0;
  pjrt.compiles_only = true;
  auto plugin = FindPlugin("cpu");
  absl::Status why = plugin.status();
  if (plugin.ok()) {
    pjrt.plugin_path = *std::move(plugin);
    auto opened = device::OpenPjrt(pjrt);
    if (opened.ok()) return *std::move(opened);
    why = opened.status();
  }
  spdlog::warn("programs are compiled without a check: {}", std::string(why.message()));
  return nullptr;
}

}  // namespace

int RunWorkerRole(const WorkerRoleOptions& options) {
  const SharedHeap heap = HeapToShare(options);
  const bool returns = options.when_lost == WhenLost::kReturn;
  const char* whom = options.own_scheduler ? "its scheduler" : "the controller";
  auto serve = [&options, &heap, returns](const Access& access, transport::Transport& transport,
                                          worker::StopFlag& stop) {
    worker::WorkerOptions worker;
    worker.token = access.token;
    worker.scheduler_address = options.control_address;
    worker.data_listen_address = DataListenAddress(options);
    worker.host = options.host;
    if (returns) worker.data_host = options.host;
    worker.island = options.island;
    worker.index = options.index;
    worker.device_count = options.devices;
    worker.plugin_path = options.plugin;
    worker.device_memory = options.device_memory;
    worker.thread_pool_size = options.threads;
    worker.memory_budget_bytes = options.memory_bytes;
    worker.host_bytes_max = options.staging_bytes;
    worker.heap_bytes_max = options.heap_bytes;
    worker.shared_bytes_max = options.shared_memory_bytes;
    worker.heap = heap;
    worker.latency_request = options.latency_request;
    worker.leave_limit = std::chrono::seconds(options.leave_limit_s);
    worker.callback_limit = std::chrono::seconds(options.callback_limit_s);
    // A device may wait for a member of its gang that a dead scheduler has not released.
    worker.end_process = [&stop, returns] {
      spdlog::shutdown();
      EndServant(stop.reason(), stop, returns);
    };
    return worker::RunWorker(worker, transport, transport, stop);
  };
  return RunServant("worker", options.access, returns, whom, options.control_address, serve);
}

int RunSchedulerRole(const SchedulerRoleOptions& options) {
  auto serve = [&options](const Access& access, transport::Transport& transport,
                          worker::StopFlag& stop) {
    return ServeIsland(options, access, transport, stop);
  };
  return RunServant("scheduler", options.access, options.when_lost == WhenLost::kReturn,
                    "the controller", options.control_address, serve);
}

namespace {

// Virtual memory for the stacks of the threads that the largest program needs (compiler/partition.h), 8 MiB each, and
// for what XLA and the C library reserve without touching it.
constexpr uint64_t kReservedBytes = uint64_t{32} << 30;
constexpr uint64_t kFileBytesMax = uint64_t{2} << 30;  // no protobuf message is larger

// Makes the folder, empty, the process's place for temporary files. Before other threads read the environment.
absl::Status UseScratch(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot make the folder ", folder, " for files of ",
                                               "programs: ", error.message()));
  setenv("TMPDIR", folder.c_str(), 1);
  return absl::OkStatus();
}

// What the kernel lacks is said, here and by `gangway doctor`, and the rest holds.
absl::Status OrSay(const absl::Status& confined) {
  if (!absl::IsUnimplemented(confined)) return confined;
  spdlog::warn("programs can do more here than elsewhere: {}", std::string(confined.message()));
  return absl::OkStatus();
}

// Compilers for other devices use their drivers' files and start programs of their own.
absl::Status ConfineCompiler(const CompilerRoleOptions& options, const device::Backend& backend) {
  if (backend.capabilities().platform != "cpu") {
    spdlog::warn("this process is not confined: its platform is {}",
                 backend.capabilities().platform);
    return absl::OkStatus();
  }
  const uint64_t more = options.memory_bytes == 0 ? 0 : 2 * options.memory_bytes + kReservedBytes;
  GANGWAY_RETURN_IF_ERROR(
      compiler::LimitProcess({.more_address_bytes = more, .file_bytes_max = kFileBytesMax}));
  compiler::FileAccess files{.readable = compiler::SystemFiles()};
  std::error_code error;
  files.readable.push_back(
      std::filesystem::canonical(options.plugin, error).parent_path().native());
  for (const std::string& folder : {options.scratch_folder, options.cache_folder})
    if (!folder.empty()) files.writable.push_back(folder);
  GANGWAY_RETURN_IF_ERROR(OrSay(compiler::ConfineFiles(files)));
  return OrSay(compiler::ConfineCalls());
}

compiler::OpenBackend OpenLarger(const device::PjrtOptions& pjrt) {
  return [pjrt](int device_count) {
    device::PjrtOptions larger = pjrt;
    larger.device_count = device_count;
    larger.nproc = 0;  // as it is: other threads may read the environment
    return device::OpenPjrt(larger);
  };
}

// A spare ends with its link: the head lets it go when it has had no work.
int ExitOfCompiler(const absl::Status& ended, bool spare) {
  if (ended.ok()) return 0;
  const bool let_go = spare || absl::IsCancelled(ended);
  if (!let_go || IsLasting(ended)) return Fail(ended);
  spdlog::info("this compiler ends: {}", std::string(ended.message()));
  return RestartPolicy::kBlameless;
}

}  // namespace

int RunCompilerRole(const CompilerRoleOptions& options) {
  BeginRole("compiler");
  if (auto status = UseScratch(options.scratch_folder); !status.ok()) return Fail(status);
  device::PjrtOptions pjrt;
  pjrt.plugin_path = options.plugin;
  pjrt.device_count = std::max(options.devices, kConverterDevices);
  pjrt.nproc = options.threads;
  pjrt.compiles_only = true;
  auto backend = device::OpenPjrt(pjrt);
  if (!backend.ok()) return Fail(backend.status());
  device::OfferHandlers(**backend,
                        std::vector{device::LinalgHandlers((*backend)->capabilities()),
                                    device::SimulatedWorkHandlers(), device::HostCallHandlers(),
                                    device::PositionHandlers(), collective::CollectiveHandlers()});
  auto access = ReadAccess(options.access);
  if (!access.ok()) return Fail(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return Fail(transport.status());
  compiler::CompilerOptions compiler;
  compiler.token = access->token;
  compiler.transport = transport->get();
  compiler.head_address = options.control_address;
  compiler.backend = backend->get();
  const std::unique_ptr<device::Backend> converter = OpenConverter(**backend);
  compiler.converter = converter.get();
  compiler.open = OpenLarger(pjrt);
  compiler.confine = [&] { return ConfineCompiler(options, **backend); };
  compiler.memory_bytes_max = options.memory_bytes;
  compiler.index = options.index;
  if (options.index > 0) compiler.name = absl::StrCat("compiler", options.index);
  compiler.plugin_path = options.plugin;
  compiler.cache_folder = options.cache_folder;
  std::stop_source stop;
  static Thread* const waits = new Thread("gw-signals", [stop]() mutable {  // ends with the process
    WaitForStop();
    stop.request_stop();
  });
  (void)waits;
  absl::Status ended = compiler::RunCompiler(compiler, stop.get_token());
  return ExitOfCompiler(ended, options.index > 0);
}

int RunFrontDoorRole(const FrontDoorRoleOptions& options) {
  BeginRole("front door");
  spdlog::set_level(spdlog::level::warn);  // its log mixes with the script's output
  auto access = ReadAccess({.tls = options.tls});
  if (!access.ok()) return Fail(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return Fail(transport.status());
  const absl::Status there =
      Probe(**transport, options.connect, access->token, "gangway run", kReadyCheckLimit);
  if (!there.ok()) return Fail(ExplainConnection(there, options.connect, access->tls));
  const char* token = std::getenv("GANGWAY_TOKEN");
  ClientOptions client;
  client.controller_address = options.connect;
  client.token = access->token;
  client.control = transport->get();
  client.data = transport->get();
  client.connect_limit = kSessionLimit;
  auto door = StartFrontDoor("127.0.0.1:0",
                             transport::Verifiers::Same(token == nullptr ? "" : token), client);
  if (!door.ok()) return Fail(door.status());
  Announce({.kind = Announcement::Kind::kListening,
            .text = absl::StrCat("127.0.0.1:", (*door)->port())});
  WaitForStop();
  door->reset();
  return 0;
}

}  // namespace gangway::cli
