// Implementation of roles.h.
#include "gangway/cli/roles.h"

#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/mutex.h"
#include "gangway/cli/announcement.h"
#include "gangway/cli/metrics.h"
#include "gangway/cli/status_text.h"
#include "gangway/cli/tool_link.h"
#include "gangway/compiler/compiler.h"
#include "gangway/device/pjrt/linalg/linalg_handlers.h"
#include "gangway/device/pjrt/pjrt_backend.h"
#include "gangway/transport/grpc/grpc.h"
#include "gangway/worker/service/worker.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::milliseconds kReadyCheckInterval{50};
constexpr std::chrono::seconds kReadyCheckLimit{5};

// Before any other thread starts: all inherit the mask, so that the signals come to WaitForStop
// only.
void BeginRole(const char* name) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt(name));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %n %L %v");
  spdlog::flush_on(spdlog::level::info);
}

void WaitForStop() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
}

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

// Watches the head from outside, as a tool does, until everybody declared is there, and announces
// it.
class ReadyWatch {
 public:
  explicit ReadyWatch(std::string control_address)
      : control_address_(std::move(control_address)), thread_([this] { Run(); }) {}
  ~ReadyWatch() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Run() {
    auto transport = transport::NewGrpcTransport();
    if (!transport.ok()) return;
    std::string announced;
    while (true) {
      auto status = AskStatus(**transport, control_address_, kReadyCheckLimit);
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
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GANGWAY_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Null where none are wanted.
absl::StatusOr<std::unique_ptr<MetricsEndpoint>> ServeMetrics(const HeadOptions& options) {
  if (options.metrics_port == 0) return nullptr;
  return MetricsEndpoint::Start(
      options.metrics_port,
      [control = options.control_address]() -> absl::StatusOr<wire::StatusReply> {
        auto transport = transport::NewGrpcTransport();
        if (!transport.ok()) return transport.status();
        return AskStatus(**transport, control, kReadyCheckLimit);
      });
}

}  // namespace

int RunHeadRole(HeadOptions options) {
  BeginRole("head");
  options.on_event = [](const std::string& event) {
    spdlog::info("{}", event);
    Announce({.kind = Announcement::Kind::kEvent, .text = event});
  };
  options.on_silent = [](uint64_t process_id) {
    Announce({.kind = Announcement::Kind::kSilent, .text = absl::StrCat(process_id)});
  };
  auto head = Head::Start(options);
  if (!head.ok()) return Fail(head.status());
  auto metrics = ServeMetrics(options);
  if (!metrics.ok()) return Fail(metrics.status());
  spdlog::info("front door at {}, control at {}", (*head)->front_door_address(),
               options.control_address);
  Announce({.kind = Announcement::Kind::kListening, .text = options.control_address});
  {
    ReadyWatch watch(options.control_address);
    WaitForStop();
  }
  head->reset();
  return 0;
}

int RunWorkerRole(const WorkerRoleOptions& options) {
  BeginRole("worker");
  auto transport = transport::NewGrpcTransport();
  if (!transport.ok()) return Fail(transport.status());
  worker::WorkerOptions worker;
  worker.scheduler_address = options.control_address;
  worker.data_listen_address = "127.0.0.1:0";
  worker.island = options.island;
  worker.index = options.index;
  worker.device_count = options.devices;
  worker.plugin_path = options.plugin;
  worker.memory_budget_bytes = options.memory_bytes;
  worker::StopFlag stop;
  std::thread([&stop] {  // ends with the process
    WaitForStop();
    stop.Stop();
  })
      .detach();
  absl::Status ended = worker::RunWorker(worker, **transport, **transport, stop);
  const int result = ended.ok() ? 0 : Fail(ended);
  transport->reset();
  _exit(result);  // the signal thread refers to `stop`
}

int RunCompilerRole(const CompilerRoleOptions& options) {
  BeginRole("compiler");
  device::PjrtOptions pjrt;
  pjrt.plugin_path = options.plugin;
  pjrt.device_count = options.devices;
  auto backend = device::OpenPjrt(pjrt);
  if (!backend.ok()) return Fail(backend.status());
  device::OfferLinalg(**backend);
  auto transport = transport::NewGrpcTransport();
  if (!transport.ok()) return Fail(transport.status());
  compiler::CompilerOptions compiler;
  compiler.transport = transport->get();
  compiler.head_address = options.control_address;
  compiler.backend = backend->get();
  compiler.plugin_path = options.plugin;
  if (!options.cache_folder.empty()) compiler.cache_folder = options.cache_folder;
  std::stop_source stop;
  std::thread([stop]() mutable {  // ends with the process
    WaitForStop();
    stop.request_stop();
  })
      .detach();
  absl::Status ended = compiler::RunCompiler(compiler, stop.get_token());
  return ended.ok() ? 0 : Fail(ended);
}

}  // namespace gangway::cli
