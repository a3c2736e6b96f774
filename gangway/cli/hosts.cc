// Implementation of hosts.h.
#include "gangway/cli/hosts.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/host_memory.h"
#include "gangway/base/status.h"
#include "gangway/cli/certs.h"
#include "gangway/cli/config.h"
#include "gangway/cli/memory_plan.h"
#include "gangway/cli/plugin.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/supervisor.h"
#include "gangway/cli/up.h"
#include "gangway/transport/grpc/address.h"

namespace gangway::cli {
namespace {

int Fail(const absl::Status& status) {
  fprintf(stderr, "gangway controller: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Checks SE-1 before anything is started: an address beyond loopback needs TLS. With TLS, checks
// that peers will accept this host's certificate.
absl::Status CheckReach(const std::string& host, int port, const std::string& tls) {
  if (!tls.empty()) return CheckCertificate(tls, host);
  return transport::ParseAddress(HostAndPort(ListenHost(host), port), transport::Security::kPlain)
      .status();
}

// Copies what processes of this host need to the state folder, where they find it.
absl::Status WriteAccess(const StateDir& dir, const std::string& tls) {
  if (tls.empty()) {
    dir.Remove(kTlsFolder);
    return EnsureTokens(dir.path());
  }
  for (wire::Role role : {wire::ROLE_CLIENT, wire::ROLE_COMPILER, wire::ROLE_TOOL}) {
    GANGWAY_ASSIGN_OR_RETURN(auto access, ReadAccess({.tls = tls, .role = role}));
    GANGWAY_RETURN_IF_ERROR(WritePrivateFile(dir.File(TokenFile(role)), access.token + "\n"));
  }
  GANGWAY_ASSIGN_OR_RETURN(auto verifiers, ReadVerifiers({.tls = tls}));
  GANGWAY_RETURN_IF_ERROR(WritePrivateFile(dir.File(kVerifiersFile), verifiers.ToText()));
  return dir.Write(kTlsFolder, tls);
}

std::vector<ChildSpec> ControllerChildren(const ClusterConfig& config, const HostOptions& options,
                                          const StateDir& dir) {
  auto access = [&](wire::Role role) {
    std::vector<std::string> flags = {"--token-file", dir.File(TokenFile(role))};
    if (!options.tls.empty()) flags.insert(flags.end(), {"--tls", options.tls});
    return flags;
  };
  std::vector<std::string> head = {RoleBinary(), "head", "--config", options.config};
  for (std::string& flag : access(wire::ROLE_TOOL)) head.push_back(std::move(flag));
  for (std::string& flag : FrontDoorSocket(dir)) head.push_back(std::move(flag));
  if (!options.latency_request) head.emplace_back("--no-latency-request");
  std::vector<ChildSpec> children =
      CompilerChildren(config.compilers, config.DevicesMax(), config.threads, config.plugin, dir,
                       access(wire::ROLE_COMPILER));
  children.insert(children.begin(), {"head", [head](const std::string&) { return head; }});
  return children;
}

SupervisorOptions Describe(const ClusterConfig& config, const HostOptions& options,
                           const StateDir& dir) {
  SupervisorOptions supervised;
  supervised.children = ControllerChildren(config, options, dir);
  supervised.ready_limit = std::chrono::milliseconds(0);  // workers may start at any time
  supervised.ready_text =
      absl::StrCat("ready: all declared workers are up; control at ", config.ControlAddress(),
                   ", JAX at 127.0.0.1:", config.front_door_port);
  supervised.say = [](const std::string& line) {
    printf("%s\n", line.c_str());
    fflush(stdout);
  };
  supervised.complain = [](const std::string& text) {
    fprintf(stderr, "gangway controller: %s\n", text.c_str());
  };
  return supervised;
}

absl::StatusOr<ClusterConfig> ReadWithPlugin(const std::string& path) {
  auto config = ReadConfig(path);
  GANGWAY_RETURN_IF_ERROR(config);
  GANGWAY_ASSIGN_OR_RETURN(config->plugin, FindPlugin(config->plugin));
  return config;
}

// Without TLS, the token is in the controller's state folder, on the same host.
AccessFiles HostAccess(const HostOptions& options, const ClusterConfig& config, wire::Role role) {
  AccessFiles access = {.tls = options.tls, .role = role};
  if (!options.tls.empty()) return access;
  access.token_file =
      StateDir(StateRoot(options.state_root), config.front_door_port).File(TokenFile(role));
  return access;
}

}  // namespace

int RunController(const HostOptions& given) {
  HostOptions options = given;
  options.config = std::filesystem::absolute(given.config);
  if (!given.tls.empty()) options.tls = std::filesystem::absolute(given.tls);
  auto config = ReadWithPlugin(options.config);
  if (!config.ok()) return Fail(config.status());
  auto reach = CheckReach(config->controller_host, config->control_port, options.tls);
  if (!reach.ok()) return Fail(reach);
  StateDir dir(StateRoot(options.state_root), config->front_door_port);
  if (auto status = dir.Lock(); !status.ok()) return Fail(status);
  if (auto port = ClaimPort(config->front_door_port); !port.ok()) return Fail(port.status());
  if (auto status = WriteAccess(dir, options.tls); !status.ok()) return Fail(status);
  if (auto status = dir.Write(kDeviceCount, absl::StrCat(config->Devices())); !status.ok())
    return Fail(status);
  if (auto status = dir.Write(kSupervisorPid, absl::StrCat(getpid())); !status.ok())
    return Fail(status);
  const int result = Supervisor(Describe(*config, options, dir), &dir).Run();
  dir.Remove(kSupervisorPid);
  return result;
}

absl::StatusOr<std::string> HeadFromConfig(const std::string& path, HeadOptions& head) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(path));
  head.islands = config.Shape();
  for (uint32_t i = 0; i < config.islands.size(); ++i) {
    const auto& scheduler = config.islands[i].scheduler;
    if (scheduler) head.remote_schedulers[i] = HostAndPort(scheduler->host, scheduler->port);
  }
  head.budget_bytes = config.memory_bytes.value_or(0);
  head.memory_bytes = config.head_memory_bytes;
  head.control_address = config.ControlListenAddress();
  head.front_door_address = absl::StrCat("127.0.0.1:", config.front_door_port);
  head.client_silence_max = std::chrono::seconds(config.client_silence_s);
  head.welcome_max = std::chrono::seconds(config.session_wait_s);
  head.worker_wait_max = std::chrono::seconds(config.worker_wait_s);
  head.late_after = std::chrono::seconds(config.late_after_s);
  head.collective_limit = std::chrono::seconds(config.collective_limit_s);
  head.compilers = config.compilers.count;
  head.compile_limit = std::chrono::seconds(config.compilers.limit_s);
  head.orphan_limit = std::chrono::seconds(config.orphan_limit_s);
  head.callback_hold_max = std::chrono::seconds(config.callback_hold_s);
  head.quarantine_time = std::chrono::seconds(config.quarantine_s);
  head.own_collectives = config.collectives == kOwnCollectives;
  head.isolates = config.isolation == kProcessIsolation;
  head.latency_request &= config.latency_request;
  return config.ControlAddress();
}

absl::StatusOr<SchedulerRoleOptions> SchedulerFromConfig(const HostOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadConfig(options.config));
  if (options.island >= config.islands.size() || !config.islands[options.island].scheduler) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.config, " has no scheduler of its own for island ", options.island,
        ": write scheduler = { host = \"a.example\", port = 38620 } in its [[island]], or start "
        "none: the controller then schedules the island"));
  }
  const HostScheduler& declared = *config.islands[options.island].scheduler;
  GANGWAY_RETURN_IF_ERROR(CheckReach(declared.host, declared.port, options.tls));
  SchedulerRoleOptions scheduler;
  scheduler.control_address = config.ControlAddress();
  scheduler.listen_address = HostAndPort(ListenHost(declared.host), declared.port);
  scheduler.access = HostAccess(options, config, wire::ROLE_SCHEDULER);
  scheduler.island = options.island;
  scheduler.when_lost = WhenLost::kReturn;
  return scheduler;
}

absl::StatusOr<WorkerRoleOptions> WorkerFromConfig(const HostOptions& options) {
  GANGWAY_ASSIGN_OR_RETURN(auto config, ReadWithPlugin(options.config));
  if (options.island >= config.islands.size() ||
      options.index >= config.islands[options.island].workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(options.config, " declares no worker ",
                                                   options.index, " in island ", options.island,
                                                   ": both count from 0 (--island, --index)"));
  }
  const HostIsland& island = config.islands[options.island];
  const HostWorker& declared = island.workers[options.index];
  GANGWAY_RETURN_IF_ERROR(CheckReach(declared.host, declared.data_port, options.tls));
  WorkerRoleOptions worker;
  worker.control_address = island.scheduler
                               ? HostAndPort(island.scheduler->host, island.scheduler->port)
                               : config.ControlAddress();
  worker.own_scheduler = island.scheduler.has_value();
  worker.access = HostAccess(options, config, wire::ROLE_WORKER);
  worker.island = options.island;
  worker.index = options.index;
  worker.devices = static_cast<int>(declared.devices);
  worker.threads = config.threads;
  uint32_t on_host = 0;
  for (const HostIsland& each : config.islands) {
    for (const HostWorker& other : each.workers) on_host += other.host == declared.host ? 1 : 0;
  }
  const WorkerMemory memory =
      PlanWorker(HostMemoryBytes(), on_host, declared.devices, config.plugin, config.memory_bytes);
  worker.memory_bytes = memory.device_bytes;
  worker.staging_bytes = memory.staging_bytes;
  worker.shared_memory_bytes = memory.shared_bytes;
  worker.heap_bytes = memory.heap_bytes;
  worker.plugin = config.plugin;
  worker.device_memory = config.device_memory;
  worker.data_listen_address = HostAndPort(ListenHost(declared.host), declared.data_port);
  worker.host = declared.host;
  worker.when_lost = WhenLost::kReturn;
  return worker;
}

}  // namespace gangway::cli
