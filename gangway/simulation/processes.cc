// Implementation of processes.h.
#include "gangway/simulation/processes.h"

#include "absl/strings/str_cat.h"

#include "gangway/base/executor.h"
#include "gangway/base/status.h"
#include "gangway/compiler/compiler.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/device/sim/sim_timer.h"
#include "gangway/transport/inproc/inproc.h"

namespace gangway::simulation {
namespace {

constexpr char kHead[] = "head";
constexpr char kControlAddress[] = "head:1";
constexpr char kToken[] = "token";

// Device time is the world's.
class WorldTimer final : public device::SimTimer {
 public:
  int64_t NowMicros() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
        .count();
  }
  void At(int64_t micros, std::function<void()> task) override {
    loop_.PostAt(Clock::time_point(std::chrono::microseconds(micros)), std::move(task));
  }

 private:
  EventLoop loop_{"sim-devices"};
};

}  // namespace

Processes::Processes(FiberWorld* world, const ProcessesOptions& options)
    : world_(world), options_(options), network_(options.network) {}

Processes::~Processes() {
  for (auto& [key, worker] : workers_) {
    MutexLock lock(worker.mutex);
    worker.ending = true;
    if (worker.life != nullptr) worker.life->stop.Stop();
    worker.changed.NotifyAll();
  }
  for (auto& [key, worker] : workers_) world_->Join(worker.supervisor);
  stop_compiler_.request_stop();
  if (compiler_ != 0) world_->Join(compiler_);
  client_networks_.clear();
  plane_.reset();
}

absl::Status Processes::Start() {
  head_network_ = network_.Join(kHead);
  head_local_ = transport::NewInprocTransport();
  cli::ControlPlaneOptions plane;
  plane.islands = options_.islands;
  plane.budget_bytes = options_.budget_bytes;
  plane.token = kToken;
  plane.control_address = kControlAddress;
  GANGWAY_ASSIGN_OR_RETURN(plane_,
                           cli::ControlPlane::Start(plane, head_local_.get(), head_network_.get()));
  compiler_ = world_->StartIn(world_->NewProcess(), "compiler", [this] {
    auto backend = device::OpenSim({.device_count = 16, .timer = std::make_shared<WorldTimer>()});
    auto transport = network_.Join("compiler");
    compiler::CompilerOptions options;
    options.transport = transport.get();
    options.head_address = kControlAddress;
    options.token = kToken;
    options.backend = backend.get();
    options.cache_folder = "";
    (void)compiler::RunCompiler(options, stop_compiler_.get_token());
  });
  for (uint32_t island = 0; island < options_.islands.size(); ++island) {
    for (uint32_t index = 0; index < options_.islands[island].size(); ++index) {
      const WorkerKey key(island, index);
      Worker& worker = workers_[key];
      worker.supervisor = world_->StartIn(world_->NewProcess(), "supervisor",
                                          [this, key, &worker] { Supervise(key, worker); });
    }
  }
  return absl::OkStatus();
}

void Processes::Supervise(WorkerKey key, Worker& worker) {
  while (true) {
    auto life = std::make_shared<Life>();
    life->name = absl::StrCat("worker", key.first, ".", key.second, "#", ++worker.lives);
    {
      MutexLock lock(worker.mutex);
      if (worker.ending) return;
      worker.life = life;
    }
    const World::ThreadId main =
        world_->StartIn(world_->NewProcess(), "worker", [this, key, life] { RunLife(key, *life); });
    world_->Join(main);
    MutexLock lock(worker.mutex);
    worker.life = nullptr;
    worker.changed.WaitFor(worker.mutex, options_.restart_delay,
                           [&worker]() GANGWAY_NO_ANALYSIS { return worker.ending; });
  }
}

void Processes::RunLife(WorkerKey key, Life& life) {
  auto transport = network_.Join(life.name);
  auto timer = std::make_shared<WorldTimer>();
  worker::WorkerOptions options;
  options.scheduler_address = kControlAddress;
  options.token = kToken;
  options.data_listen_address = absl::StrCat(life.name, ":0");
  options.island = key.first;
  options.index = key.second;
  options.host = life.name;
  options.device_count = static_cast<int>(options_.islands[key.first][key.second]);
  options.memory_budget_bytes = options_.budget_bytes;
  options.shared_bytes_max = 0;
  options.open_backend = [&]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
    return device::OpenSim({.device_count = options.device_count, .timer = timer});
  };
  (void)worker::RunWorker(options, *transport, *transport, life.stop);
}

absl::StatusOr<std::unique_ptr<Client>> Processes::Connect(const std::string& name) {
  client_networks_.push_back(network_.Join(name));
  ClientOptions options;
  options.controller_address = kControlAddress;
  options.name = name;
  options.token = kToken;
  options.control = options.data = client_networks_.back().get();
  return gangway::Connect(options);
}

void Processes::KillWorker(WorkerKey key) {
  Worker& worker = workers_.at(key);
  MutexLock lock(worker.mutex);
  if (worker.life == nullptr) return;
  network_.Kill(worker.life->name);
  worker.life->stop.Stop(absl::CancelledError("killed"));
}

}  // namespace gangway::simulation
