// Implementation of processes.h.
#include "gangway/simulation/processes.h"

#include <algorithm>
#include <numeric>
#include <stop_token>

#include "absl/strings/str_cat.h"

#include "gangway/base/executor.h"
#include "gangway/cli/control_plane.h"
#include "gangway/compiler/compiler.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/device/sim/sim_timer.h"
#include "gangway/scheduler/service/scheduler_service.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/transport/inproc/inproc.h"
#include "gangway/transport/paced_sender.h"

namespace gangway::simulation {
namespace {

constexpr char kHead[] = "head";
constexpr char kCompiler[] = "compiler";
constexpr std::chrono::seconds kForever{1'000'000};
constexpr uint32_t kCompilerDevicesMin = 16;
constexpr int64_t kCompletionDelayUs = 500;  // several short programs

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

std::string SchedulerAddress(uint32_t island) {
  return absl::StrCat(Processes::SchedulerName(island), ":1");
}

}  // namespace

std::string Processes::WorkerName(WorkerKey worker) {
  return absl::StrCat("worker", worker.first, ".", worker.second);
}

std::string Processes::SchedulerName(uint32_t island) { return absl::StrCat("scheduler", island); }

Processes::Processes(FiberWorld* world, const ProcessesOptions& options)
    : world_(world), options_(options), network_(options.network) {}

Processes::~Processes() {
  // The head last: the others then end by themselves, not by its loss.
  for (auto& [name, role] : roles_) {
    if (name != kHead) End(name);
  }
  for (auto& [name, role] : roles_) {
    if (name != kHead) world_->Join(role.supervisor);
  }
  client_networks_.clear();
  auto head = roles_.find(kHead);
  if (head == roles_.end()) return;
  End(kHead);
  world_->Join(head->second.supervisor);
}

void Processes::End(const std::string& name) {
  Role& role = roles_.at(name);
  MutexLock lock(role.mutex);
  role.ending = true;
  if (role.life != nullptr) {
    role.life->stop.Stop();
    world_->Continue(role.life->process);
  }
  role.changed.NotifyAll();
}

absl::Status Processes::Start() {
  AddRole(kHead, [this](Life& life) { RunHead(life); });
  absl::Status started =
      head_started_.WaitFor(std::chrono::minutes(1)).value_or(absl::DeadlineExceededError("head"));
  if (!started.ok()) return started;
  AddRole(kCompiler, [this](Life& life) { RunCompiler(life); });
  for (uint32_t island = 0; island < options_.islands.size(); ++island) {
    if (options_.separate_schedulers.contains(island))
      AddRole(SchedulerName(island), [this, island](Life& life) { RunScheduler(island, life); });
    for (uint32_t index = 0; index < options_.islands[island].size(); ++index) {
      const WorkerKey key(island, index);
      AddRole(WorkerName(key), [this, key](Life& life) { RunWorker(key, life); });
    }
  }
  return absl::OkStatus();
}

void Processes::AddRole(const std::string& name, std::function<void(Life&)> run) {
  Role& role = roles_[name];
  role.run = std::move(run);
  role.supervisor = world_->StartIn(world_->NewProcess(), "supervisor",
                                    [this, name, &role] { Supervise(name, role); });
}

void Processes::Supervise(const std::string& name, Role& role) {
  while (true) {
    auto life = std::make_shared<Life>();
    life->name = absl::StrCat(name, "#", ++role.lives);
    life->process = world_->NewProcess();
    {
      MutexLock lock(role.mutex);
      if (role.ending) return;
      role.life = life;
    }
    world_->Join(world_->StartIn(life->process, name, [&role, life] { role.run(*life); }));
    network_.Kill(life->name);  // what is left of it, if it did not end in order
    MutexLock lock(role.mutex);
    role.life = nullptr;
    role.changed.WaitFor(role.mutex, options_.restart_delay,
                         [&role]() GANGWAY_NO_ANALYSIS { return role.ending; });
  }
}

void Processes::RunHead(Life& life) {
  auto network = network_.Join(life.name);
  auto local = transport::NewInprocTransport();
  cli::ControlPlaneOptions options;
  options.islands = options_.islands;
  for (uint32_t island : options_.separate_schedulers)
    options.remote_schedulers[island] = SchedulerAddress(island);
  options.budget_bytes = options_.budget_bytes;
  options.put_cost_max = options_.put_cost_max;
  options.isolates = options_.isolates;
  options.worker_wait_max = options_.worker_wait_max;
  options.memory_wait_max = options_.memory_wait_max;
  options.token = kToken;
  options.absent_max = options.welcome_max;                // sessions of scenarios need all workers
  options.quarantine_time = std::chrono::milliseconds(0);  // workers are killed from outside
  options.orphan_limit = std::chrono::hours(1);            // slow programs of ended sessions end
  options.control_address = kControlAddress;
  options.on_silent = [this](uint64_t process) { KillSilent(process); };
  auto plane = cli::ControlPlane::Start(options, local.get(), network.get());
  head_started_.Set(plane.status());
  if (!plane.ok()) return;
  while (!life.stop.WaitFor(kForever)) continue;
}

void Processes::RunScheduler(uint32_t island, Life& life) {
  auto network = network_.Join(life.name);
  scheduler::SchedulerOptions options;
  options.island = island;
  options.put_cost_max = options_.put_cost_max;
  options.token = kToken;
  options.on_silent = [this](uint64_t process) { KillSilent(process); };
  options.on_controller_lost = [&life](const absl::Status& why) { life.stop.Stop(why); };
  EventLoop loop("scheduler");
  auto service = scheduler::SchedulerService::Connect(&loop, std::move(options), *network,
                                                      kControlAddress, std::chrono::seconds(10));
  if (service.ok()) {
    auto welcome = [&service](const std::shared_ptr<transport::Link>& link,
                              const wire::Hello& hello) {
      return (*service)->Welcome(link, hello);
    };
    auto listener = network->Listen(
        SchedulerAddress(island),
        transport::Greet(&loop,
                         {.token_needed = true, .verifiers = transport::Verifiers::Same(kToken)},
                         welcome),
        transport::kBatchLink);
    while (listener.ok() && !life.stop.WaitFor(kForever)) continue;
  }
  loop.Stop();
}

void Processes::RunCompiler(Life& life) {
  uint32_t device_count = kCompilerDevicesMin;
  for (const std::vector<uint32_t>& workers : options_.islands)
    device_count = std::max(device_count, std::accumulate(workers.begin(), workers.end(), 0U));
  auto backend = device::OpenSim(
      {.device_count = static_cast<int>(device_count), .timer = std::make_shared<WorldTimer>()});
  auto network = network_.Join(life.name);
  compiler::CompilerOptions options;
  options.transport = network.get();
  options.head_address = kControlAddress;
  options.token = kToken;
  options.backend = backend.get();
  options.cache_folder = "";
  std::stop_source stop;
  Thread watch("watch", [&life, &stop] {
    while (!life.stop.WaitFor(kForever)) continue;
    stop.request_stop();
  });
  (void)compiler::RunCompiler(options, stop.get_token());
  life.stop.Stop();
  watch.Join();
}

int Processes::FirstDeviceOf(WorkerKey key) const {
  uint32_t first = 0;
  for (uint32_t island = 0; island <= key.first; ++island) {
    const std::vector<uint32_t>& workers = options_.islands[island];
    const auto end = island == key.first ? workers.begin() + key.second : workers.end();
    first = std::accumulate(workers.begin(), end, first);
  }
  return static_cast<int>(first);
}

void Processes::RunWorker(WorkerKey key, Life& life) {
  auto transport = network_.Join(life.name);
  auto timer = std::make_shared<WorldTimer>();
  worker::WorkerOptions options;
  options.scheduler_address = options_.separate_schedulers.contains(key.first)
                                  ? SchedulerAddress(key.first)
                                  : kControlAddress;
  options.token = kToken;
  options.data_listen_address = absl::StrCat(life.name, ":0");
  options.island = key.first;
  options.index = key.second;
  options.host = life.name;
  options.device_count = static_cast<int>(options_.islands[key.first][key.second]);
  options.memory_budget_bytes = options_.budget_bytes;
  options.host_bytes_max = options_.staging_bytes;
  options.shared_bytes_max = 0;
  options.open_backend = [&]() -> absl::StatusOr<std::unique_ptr<device::Backend>> {
    device::SimOptions sim{.device_count = options.device_count,
                           .first_device = FirstDeviceOf(key),
                           .completion_delay_us = kCompletionDelayUs,
                           .timer = timer};
    if (options_.on_use) {
      sim.on_use = [this, name = life.name](int device, int64_t bytes) {
        options_.on_use(name, device, bytes);
      };
    }
    return device::OpenSim(std::move(sim));
  };
  options.end_process = [this] {
    if (options_.on_stuck_end) options_.on_stuck_end();
    world_->Exit();
  };
  (void)worker::RunWorker(options, *transport, *transport, life.stop);
}

absl::StatusOr<std::unique_ptr<Client>> Processes::Connect(const std::string& name,
                                                           bool reports_ends) {
  clients_[name] = world_->ProcessId();
  client_networks_.push_back(network_.Join(name));
  ClientOptions options;
  options.controller_address = kControlAddress;
  options.name = name;
  options.token = kToken;
  options.reports_ends = reports_ends;
  options.control = options.data = client_networks_.back().get();
  return gangway::Connect(options);
}

std::vector<std::string> Processes::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, role] : roles_) names.push_back(name);
  for (const auto& [name, process] : clients_) names.push_back(name);
  return names;
}

bool Processes::Kill(const std::string& name) {
  auto role = roles_.find(name);
  if (role == roles_.end()) {
    network_.Kill(name);
    return true;
  }
  MutexLock lock(role->second.mutex);
  if (role->second.life == nullptr) return false;
  network_.Kill(role->second.life->name);
  role->second.life->stop.Stop(absl::CancelledError("killed"));
  world_->Continue(role->second.life->process);
  return true;
}

void Processes::KillSilent(uint64_t process) {
  for (auto& [name, role] : roles_) {
    bool it = false;
    {
      MutexLock lock(role.mutex);
      it = role.life != nullptr && role.life->process == process;
    }
    if (it) {
      Kill(name);
      return;
    }
  }
}

void Processes::Stop(const std::string& name) {
  if (auto client = clients_.find(name); client != clients_.end())
    return world_->Stop(client->second);
  Role& role = roles_.at(name);
  MutexLock lock(role.mutex);
  if (role.life != nullptr) world_->Stop(role.life->process);
}

void Processes::Continue(const std::string& name) {
  if (auto client = clients_.find(name); client != clients_.end())
    return world_->Continue(client->second);
  Role& role = roles_.at(name);
  MutexLock lock(role.mutex);
  if (role.life != nullptr) world_->Continue(role.life->process);
}

}  // namespace gangway::simulation
