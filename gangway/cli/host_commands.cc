// Implementation of host_commands.h.
#include "gangway/cli/host_commands.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gangway/cli/options.h"

namespace gangway::cli {
namespace {

constexpr int kConnectLimitS =
    300;  // of a worker without a file, which a workload manager may have started alone

int StartScheduler(const SchedulerRoleOptions& told, const HostOptions& hosts) {
  if (hosts.config.empty()) return RunSchedulerRole(told);
  auto scheduler = SchedulerFromConfig(hosts);
  if (scheduler.ok()) scheduler->latency_request = told.latency_request;
  if (scheduler.ok()) return RunSchedulerRole(*scheduler);
  fprintf(stderr, "gangway scheduler: %s\n", std::string(scheduler.status().message()).c_str());
  return 1;
}

int StartWorker(const WorkerRoleOptions& told, const HostOptions& hosts) {
  auto worker = hosts.config.empty() ? WorkerByAddress(hosts, told) : WorkerFromConfig(hosts, told);
  if (worker.ok()) return RunWorkerRole(*worker);
  fprintf(stderr, "gangway worker: %s\n", std::string(worker.status().message()).c_str());
  return 1;
}

}  // namespace

void AddCerts(CLI::App& app, CertsOptions& certs, int& result) {
  CLI::App* command =
      app.add_subcommand("certs", "make the certificates and tokens of a cluster over hosts");
  command->add_option("folder", certs.folder, "the folder to create")->required();
  command->add_option("--hosts", certs.hosts, "all hosts of the cluster: names or addresses")
      ->delimiter(',');
  command->add_flag(
      "--any-host", certs.any_host,
      "for a cluster whose hosts are not known beforehand: processes check who issued "
      "a certificate and its role, and not the host's name");
  command->add_option("--days", certs.days, "how long they are valid")->capture_default_str();
  command->add_option("--add", certs.add,
                      "make the folder of this name in it, for one host or person");
  command->add_option("--role", certs.role, "of --add: controller, scheduler, worker or client");
  command->add_option("--revoke", certs.revoke, "revoke the certificate that --add made");
  command->callback([&] { result = Certs(certs); });
}

namespace {

// The shape of the cluster, and where it is reached.
void AddCluster(CLI::App* command, ControllerOptions& options) {
  AddShape(command, options);
  for (const char* count : {"--islands", "--workers", "--devices"})
    command->get_option(count)->check(CLI::Range(1, 4096));
  command->add_option("--listen", options.listen,
                      "HOST:PORT for workers and clients; 0.0.0.0: all addresses, which needs "
                      "--tls; port 0: any free one (default: 127.0.0.1:38601)");
  command->add_option("--host", options.host,
                      "where others reach this host (default: that of --listen, or this host's "
                      "address)");
  AddFrontDoorPort(command, options.port);
}

// What each worker has.
void AddWorkers(CLI::App* command, ClusterConfig& cluster) {
  const auto size = CLI::AsSizeValue(/*kb_is_1000=*/false);
  command->add_option("--plugin", cluster.plugin,
                      "a PJRT plugin: cpu, cuda, cuda12, cuda13 or the path of a .so, on every "
                      "host (default: each host's GANGWAY_PLUGIN, or cpu)");
  command
      ->add_option("--workers-per-host", cluster.workers_per_host,
                   "which share the memory of a host (default: 1, and on loopback all)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--memory", cluster.memory_bytes,
                   "bytes per device, as 1GB; 0: no limit (default: what the device says, or a "
                   "part of its host's)")
      ->transform(size);
  AddHeadMemory(command, cluster.head_memory_bytes);
  AddDeviceMemory(command, cluster.device_memory);
  command->add_option("--threads", cluster.threads, "of XLA CPU's thread pool in every worker")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

}  // namespace

void AddController(CLI::App& app, ControllerOptions& options, WaitLimits& waits, int& result) {
  CLI::App* command = app.add_subcommand(
      "controller", "run controller, schedulers, compiler and front door of a cluster over hosts");
  CLI::App* declaring = command->add_option_group("declaring", "the cluster, without a file");
  AddCluster(declaring, options);
  AddWorkers(declaring, options.cluster);
  AddCompilers(declaring, options.cluster.compilers);
  AddCollectives(declaring, options.cluster.collectives);
  AddIsolation(declaring, options.cluster.isolation);
  AddWaits(declaring, waits);
  CLI::Option* config = command->add_option("--config", options.config,
                                            "the file that declares the cluster, instead");
  for (CLI::Option* option : declaring->get_options()) config->excludes(option);
  AddTls(command, options.tls);
  AddStateDir(command, options.state_root);
  command->add_option("--address-file", options.address_file,
                      "gets the controller's HOST:PORT when it listens, for workers and clients");
  command
      ->add_option("--ready-limit", options.ready_limit_s,
                   "seconds until all declared workers must be up; then the controller ends with "
                   "the names of the absent ones; 0: no limit")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      ->add_option("--leave-status", options.leave_status,
                   "the exit status of a controller that was told to end")
      ->check(CLI::Range(0, 255))
      ->capture_default_str();
  AddLatencyRequest(command, options.latency_request);
  AddSpin(command);
  command->callback([&] {
    ClusterConfig& cluster = options.cluster;
    cluster.session_wait_s = waits.session_s;
    cluster.worker_wait_s = waits.worker_s;
    cluster.late_after_s = waits.late_s;
    cluster.collective_limit_s = waits.collective_s;
    cluster.orphan_limit_s = waits.orphan_s;
    cluster.callback_hold_s = waits.callback_hold_s;
    cluster.quarantine_s = waits.quarantine_s;
    result = RunController(options);
  });
}

namespace {

// Of a worker or a scheduler: how it finds its cluster. Its supervisor, if it has one, says it by the hidden options.
template <typename Role>
void AddMembership(CLI::App* command, HostOptions& hosts, Role& role) {
  command->add_option("--config", hosts.config, "the file that declares the cluster");
  AddTls(command, hosts.tls);
  command->add_option("--state-dir", hosts.state_root,
                      "of the controller, without --tls (default: GANGWAY_STATE_DIR, or "
                      "~/.gangway)");
  AddLatencyRequest(command, role.latency_request);
  AddSpin(command);
  command->add_option("--control", role.control_address)->group("");
  command->add_option("--token-file", role.access.token_file)->group("");
}

void AddPlace(CLI::App* command, HostOptions& hosts, WorkerRoleOptions& worker) {
  command
      ->add_option("--connect", hosts.connect,
                   "the controller, as HOST:PORT, which tells what it declares of this worker "
                   "(default: GANGWAY_ADDRESS, or the cluster of this host)")
      ->excludes("--config");
  command
      ->add_option("--port", hosts.port,
                   "without --config: of the front door of a cluster of this host (default: "
                   "GANGWAY_PORT, or 38600)")
      ->check(CLI::Range(1, 65535));
  command
      ->add_option("--connect-limit", worker.connect_limit_s,
                   "seconds for the controller's first answer; 0: no limit (default: 0 with "
                   "--config, else 300)")
      ->check(CLI::Range(0, 86400));
  command->add_option("--island", hosts.place.island,
                      "of this worker, from 0 (default: --index counts through all islands)");
  command->add_option("--index", hosts.place.index, "of this worker in its island, from 0")
      ->capture_default_str();
  command->add_option("--host", hosts.place.host,
                      "where others reach this worker (default: what the cluster declares, or the "
                      "address from which this host reaches the controller)");
  command
      ->add_option("--data-port", hosts.place.data_port,
                   "where it listens; 0: any free one (default: what the cluster declares, or 0)")
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--workers-per-host", hosts.place.workers_per_host,
                   "which share this host's memory (default: what the cluster declares)")
      ->check(CLI::Range(1, 4096));
}

}  // namespace

void AddWorker(CLI::App& app, HostOptions& hosts, WorkerRoleOptions& worker, int& result) {
  CLI::App* command = app.add_subcommand("worker", "run a worker, which owns devices of this host");
  AddMembership(command, hosts, worker);
  AddPlace(command, hosts, worker);
  AddMemory(command, worker);
  command
      ->add_option("--leave-limit", worker.leave_limit_s,
                   "seconds for running work when it is told to end (SIGTERM)")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--leave-status", worker.leave_status,
                   "the exit status of a worker that was told to end")
      ->check(CLI::Range(0, 255))
      ->capture_default_str();
  command
      ->add_option("--callback-limit", worker.callback_limit_s,
                   "seconds for a client to return from a host callback (jax.debug.print, ...)")
      ->envname("GANGWAY_CALLBACK_LIMIT")
      ->check(CLI::Range(1, 240))
      ->capture_default_str();
  command->add_option("--plugin", worker.plugin,
                      "a PJRT plugin of this host, instead of the one that the cluster declares");
  command
      ->add_option("--simulate", worker.simulated,
                   "this many workers with simulated devices in one process, from --index on")
      ->check(CLI::Range(1, 4096))
      ->excludes("--plugin");
  // What a supervisor passes to its workers.
  command->add_option("--devices", worker.devices)->group("");
  command->add_option("--threads", worker.threads)->group("");
  command->add_option("--heap", worker.heap_bytes)->group("");
  command->callback([&, command] {
    if (worker.control_address.empty()) {
      hosts.place.plugin = worker.plugin;
      if (hosts.config.empty() && command->count("--connect-limit") == 0)
        worker.connect_limit_s = kConnectLimitS;
      if (const char* address = std::getenv("GANGWAY_ADDRESS");
          address != nullptr && hosts.connect.empty() && command->count("--port") == 0)
        hosts.connect = address;
      result = StartWorker(worker, hosts);
      return;
    }
    worker.island = hosts.place.island.value_or(0);
    worker.index = hosts.place.index;
    result = RunWorkerRole(worker);
  });
}

void AddScheduler(CLI::App& app, HostOptions& hosts, SchedulerRoleOptions& scheduler, int& result) {
  CLI::App* command = app.add_subcommand(
      "scheduler", "run an island's scheduler that the cluster's file declares as a process");
  AddMembership(command, hosts, scheduler);
  command->add_option("--island", hosts.place.island, "from 0");
  command->add_option("--listen", scheduler.listen_address)->group("");
  command->callback([&] {
    scheduler.island = hosts.place.island.value_or(0);
    if (hosts.config.empty() && scheduler.control_address.empty())
      throw CLI::RequiredError("--config");
    result = StartScheduler(scheduler, hosts);
  });
}

}  // namespace gangway::cli
