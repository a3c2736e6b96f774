// Implementation of roles.h.
#include "gangway/cli/roles.h"

#include <pthread.h>
#include <signal.h>
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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/heap.h"
#include "gangway/base/host_memory.h"
#include "gangway/base/lasting_error.h"
#include "gangway/base/shared_heap.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/cli/announcement.h"
#include "gangway/cli/config.h"
#include "gangway/cli/front_door.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/metrics.h"
#include "gangway/cli/open_files.h"
#include "gangway/cli/restart_policy.h"
#include "gangway/cli/role_process.h"
#include "gangway/cli/tool_link.h"
#include "gangway/scheduler/service/scheduler_service.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/local/local.h"
#include "gangway/transport/paced_sender.h"
#include "gangway/worker/service/worker.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kAskLimit{5};
constexpr std::chrono::seconds kDrainLimit{3};  // below the supervisor's stop_limit for the head
constexpr uint64_t kHeapBesideClients = uint64_t{256} << 20;  // of the head: arrays' books, traces
// The latter is below the time that a new session waits for workers that were up before.
constexpr std::chrono::milliseconds kRetryFirst{100}, kRetryMax{1500};
constexpr std::chrono::seconds kSchedulerConnectLimit{30};
constexpr std::chrono::hours kForever{24};         // the wait is then repeated
constexpr std::chrono::seconds kSessionLimit{90};  // longer than a remote controller's own limit

// Null if metrics are off.
absl::StatusOr<std::unique_ptr<MetricsEndpoint>> ServeMetrics(const HeadOptions& options,
                                                              const std::string& tools_address) {
  if (options.metrics_port == 0) return nullptr;
  return MetricsEndpoint::Start(
      options.metrics_port,
      [tools_address, access = options.access]() -> absl::StatusOr<wire::StatusReply> {
        GANGWAY_ASSIGN_OR_RETURN(auto transport, OpenTransport(access.tls));
        return AskStatus(*transport, tools_address, access.token, kAskLimit);
      });
}

// Waits until the controller, or a worker's scheduler, answers, for `limit_s` (0: no limit) or until `stop`. Logs the
// reason once, and again when it changes. If the controller rejects the token or the version, that is an error, since
// waiting does not help.
absl::Status AwaitController(const char* name, const char* whom, transport::Transport& transport,
                             const std::string& address, const Access& access, int limit_s,
                             worker::StopFlag& stop) {
  std::string said;
  const auto deadline = Clock::now() + std::chrono::seconds(limit_s);
  auto delay = kRetryFirst;
  while (!stop.WaitFor(std::chrono::milliseconds(0)) && !stop.leaving()) {
    absl::Status status = Probe(transport, address, access.token, name, kAskLimit);
    if (status.ok()) return absl::OkStatus();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const std::string why(ExplainConnection(status, address, access.tls).message());
    if (why != said) spdlog::warn("waiting for {} at {}: {}", whom, address, why);
    said = why;
    if (limit_s != 0 && Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(whom, " at ", address, " did not answer within ", limit_s, " s: ", why,
                       "; start it, or give its address and a longer --connect-limit"));
    }
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
    pthread_kill(thread_.native_handle(), EndWatchSignal());
    thread_.Join();
  }

 private:
  void Run() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGTERM, SIGINT, EndWatchSignal()}) sigaddset(&signals, signal);
    for (int told = 0; told < 2;) {
      siginfo_t info = {};
      const int signal = sigwaitinfo(&signals, &info);
      if (signal == EndWatchSignal() && info.si_pid == getpid()) return;
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
int ExitStatus(const absl::Status& ended, const worker::StopFlag& stop, int leave_status) {
  if (stop.leaving()) return leave_status;
  if (ended.ok()) return 0;
  if (IsLasting(ended)) return RestartPolicy::kHopeless;
  return absl::IsUnavailable(stop.reason()) ? RestartPolicy::kBlameless : 1;
}

// How a worker or a scheduler ends.
struct Ending {
  bool returns = false;  // it restarts itself if its scheduler or controller is gone
  int leave_status = 0;  // its exit status when it was told to end
};

// Ends this process; no destructor runs, since a device may be stuck.
[[noreturn]] void EndServant(const absl::Status& ended, const worker::StopFlag& stop,
                             const Ending& how) {
  if (how.returns && absl::IsUnavailable(ended) && !stop.leaving()) StartAfresh();
  _exit(ExitStatus(ended, stop, how.leave_status));
}

// Runs until the controller is lost, or until `stop`, and returns the reason.
absl::Status ServeIsland(const SchedulerRoleOptions& options, const Access& access,
                         transport::Transport& transport, worker::StopFlag& stop) {
  GANGWAY_ASSIGN_OR_RETURN(auto verifiers, ReadVerifiers(options.access));
  const bool supervised = options.when_lost == WhenLost::kEnd;
  scheduler::SchedulerOptions scheduler;
  scheduler.island = options.island;
  scheduler.token = access.token;
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

// Runs a worker or a scheduler, which serves `whom` at `address`. If it `returns`, it first waits
// until `whom` answers, and restarts itself when `whom` is gone; else a supervisor restarts it.
// Returns only if it could not begin; otherwise the process exits.
int RunServant(const char* name, const AccessFiles& files, Ending how, int limit_s,
               const char* whom, const std::string& address, const Serve& serve) {
  BeginRole(name);
  auto access = ReadAccess(files);
  if (!access.ok()) return FailRole(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return FailRole(transport.status());
  worker::StopFlag stop;
  LeaveWatch watch(&stop);
  absl::Status ended;
  if (how.returns)
    ended = AwaitController(name, whom, **transport, address, *access, limit_s, stop);
  const bool came = ended.ok() && !stop.leaving() && !stop.WaitFor(std::chrono::milliseconds(0));
  if (came) ended = serve(*access, **transport, stop);
  if (!ended.ok() && !stop.leaving()) FailRole(ended);
  transport->reset();
  watch.End();
  how.returns = how.returns && came;
  EndServant(ended, stop, how);
}

// `address` with the port of the listening one, if its own is 0.
std::string WithRealPort(const std::string& address, const std::string& listening) {
  if (!absl::EndsWith(address, ":0")) return address;
  return absl::StrCat(address.substr(0, address.size() - 2),
                      listening.substr(listening.rfind(':')));
}

}  // namespace

int RunHeadRole(HeadOptions options, const AccessFiles& files, const std::string& told_address) {
  BeginRole("head");
  auto access = ReadAccess(files);
  if (!access.ok()) return FailRole(access.status());
  options.access = *access;
  auto verifiers = ReadVerifiers(files);
  if (!verifiers.ok()) return FailRole(verifiers.status());
  options.verifiers = *std::move(verifiers);
  options.on_event = [](const std::string& event) {
    spdlog::info("{}", event);
    Announce({.kind = Announcement::Kind::kEvent, .text = event});
  };
  options.on_silent = [](uint64_t process_id) {
    Announce({.kind = Announcement::Kind::kSilent, .text = absl::StrCat(process_id)});
  };
  options.on_absent = [](const std::string& absent) {
    Announce({.kind = absent.empty() ? Announcement::Kind::kReady : Announcement::Kind::kWaiting,
              .text = absent});
  };
  options.on_spare_wanted = [](uint32_t compiler) {
    Announce({.kind = Announcement::Kind::kWanted, .text = absl::StrCat("compiler", compiler)});
  };
  uint64_t workers = 0;
  for (const std::vector<uint32_t>& island : options.islands) workers += island.size();
  if (auto files = CheckOpenFiles(workers, RaiseOpenFiles()); !files.ok()) return FailRole(files);
  LimitHeap(PlanHead(HostMemoryBytes(), options.memory_bytes) + kHeapBesideClients);
  auto head = Head::Start(options);
  if (!head.ok()) return FailRole(head.status());
  const std::string tools_address = WithRealPort(told_address, (*head)->control_address());
  auto metrics = ServeMetrics(options, tools_address);
  if (!metrics.ok()) return FailRole(metrics.status());
  spdlog::info("front door at {}, control at {}", (*head)->front_door_address(),
               (*head)->control_address());
  Announce({.kind = Announcement::Kind::kListening, .text = tools_address});
  WaitForStop();
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
  if (options.shared_memory_bytes != 0 && options.simulated == 0) {
    auto heap = ShareHeap();
    if (heap.ok()) return *heap;
    spdlog::warn("Other workers cannot read this one's buffers: {}",
                 std::string(heap.status().message()));
  }
#endif
  return {};
}

}  // namespace

int RunWorkerRole(const WorkerRoleOptions& given) {
  WorkerRoleOptions options = given;
  const SharedHeap heap = HeapToShare(options);
  const bool returns = options.when_lost == WhenLost::kReturn;
  const Ending how = {.returns = returns, .leave_status = options.leave_status};
  const char* whom = options.own_scheduler ? "its scheduler" : "the controller";
  auto serve = [&options, &heap, returns, how](
                   const Access& access, transport::Transport& transport, worker::StopFlag& stop) {
    if (options.ask) GANGWAY_RETURN_IF_ERROR(options.ask(access, transport, options));
    worker::WorkerOptions worker;
    worker.token = access.token;
    worker.scheduler_address = options.control_address;
    worker.data_listen_address = DataListenAddress(options);
    worker.host = options.host;
    if (returns) worker.data_host = BracketedHost(options.host);
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
    worker.end_process = [&stop, how] {
      spdlog::shutdown();
      EndServant(stop.reason(), stop, how);
    };
    if (options.simulated == 0) return worker::RunWorker(worker, transport, transport, stop);
    // Each pair of workers would map the other's memory, and the system limits the mappings of a process.
    worker.shared_bytes_max = 0;
    worker::RunSimulatedWorkers(worker, options.simulated, transport, transport, stop);
  };
  return RunServant("worker", options.access, how, options.connect_limit_s, whom,
                    options.control_address, serve);
}

int RunSchedulerRole(const SchedulerRoleOptions& options) {
  auto serve = [&options](const Access& access, transport::Transport& transport,
                          worker::StopFlag& stop) {
    return ServeIsland(options, access, transport, stop);
  };
  return RunServant("scheduler", options.access,
                    {.returns = options.when_lost == WhenLost::kReturn}, 0, "the controller",
                    options.control_address, serve);
}

int RunFrontDoorRole(const FrontDoorRoleOptions& options) {
  BeginRole("front door");
  spdlog::set_level(spdlog::level::warn);  // its log mixes with the script's output
  auto access = ReadAccess({.tls = options.tls});
  if (!access.ok()) return FailRole(access.status());
  auto transport = OpenTransport(access->tls);
  if (!transport.ok()) return FailRole(transport.status());
  const absl::Status there =
      Probe(**transport, options.connect, access->token, "gangway run", kAskLimit);
  if (!there.ok()) return FailRole(ExplainConnection(there, options.connect, access->tls));
  const char* token = std::getenv("GANGWAY_TOKEN");
  ClientOptions client;
  client.controller_address = options.connect;
  client.token = access->token;
  client.control = transport->get();
  client.data = transport->get();
  client.connect_limit = kSessionLimit;
  auto door = StartFrontDoor("127.0.0.1:0",
                             transport::Verifiers::Same(token == nullptr ? "" : token), client);
  if (!door.ok()) return FailRole(door.status());
  Announce({.kind = Announcement::Kind::kListening,
            .text = absl::StrCat("127.0.0.1:", (*door)->port())});
  WaitForStop();
  door->reset();
  return 0;
}

}  // namespace gangway::cli
