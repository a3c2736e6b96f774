// The `gangway` command: parses the command line and runs the subcommand.
#include <cstdio>

#include "absl/synchronization/mutex.h"
#include <CLI/CLI.hpp>

#include "gangway/cli/certs.h"
#include "gangway/cli/commands.h"
#include "gangway/cli/config.h"
#include "gangway/cli/doctor.h"
#include "gangway/cli/drain.h"
#include "gangway/cli/front_door.h"
#include "gangway/cli/hosts.h"
#include "gangway/cli/roles.h"
#include "gangway/cli/run.h"
#include "gangway/cli/seeing.h"
#include "gangway/cli/up.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

void AddCluster(CLI::App* command, ClusterChoice& cluster) {
  command
      ->add_option("--port", cluster.port,
                   "the cluster's front door (default: GANGWAY_PORT, or 38600)")
      ->check(CLI::Range(1, 65535));
  command->add_option("--state-dir", cluster.state_root,
                      "default: GANGWAY_STATE_DIR, or ~/.gangway");
}

void AddWaits(CLI::App* command, WaitLimits& waits) {
  command
      ->add_option("--session-wait", waits.session_s,
                   "seconds that a new client waits for a worker and, after the start, for all")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--worker-wait", waits.worker_s,
                   "seconds that work waits for a worker that is down")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--late-after", waits.late_s,
                   "seconds in a collective after which the log names the missing members")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--collective-limit", waits.collective_s,
                   "seconds in a collective after which the gang is aborted")
      ->check(CLI::Range(uint32_t{1}, kCollectiveLimitMaxS))
      ->capture_default_str();
  command
      ->add_option("--orphan-limit", waits.orphan_s,
                   "seconds that work of an ended session may still run on a device before its "
                   "worker is restarted")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--callback-hold", waits.callback_hold_s,
                   "seconds that a session's host callbacks may hold a device for which others "
                   "wait")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--quarantine", waits.quarantine_s,
                   "seconds for which a program that has ended workers is refused; 0: never")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

template <typename Options>
void AddMemory(CLI::App* command, Options& options) {
  const auto size = CLI::AsSizeValue(/*kb_is_1000=*/false);
  command
      ->add_option("--memory", options.memory_bytes,
                   "bytes per device, as 1073741824 or 1GB; 0: no limit (default: what the device "
                   "says; CPU devices share half of this machine's)")
      ->transform(size);
  command
      ->add_option("--staging", options.staging_bytes,
                   "host memory of a worker for arrays on their way to and from it, as 4GB "
                   "(default: the workers share a quarter of this machine's)")
      ->transform(size);
  command
      ->add_option("--shared-memory", options.shared_memory_bytes,
                   "memory of a worker into which other processes of its host may write arrays, as "
                   "4GB; 0: none, they use the network (default: the workers share three quarters "
                   "of this machine's)")
      ->transform(size);
  command
      ->add_option("--device-memory-fraction", options.device_memory.fraction,
                   "of each device's memory that a worker takes, as 0.4 where two workers share "
                   "GPUs (default: the plugin's choice; CUDA: 0.75)")
      ->check(CLI::Range(0.01, 1.0));
  command->add_flag_callback(
      "--no-preallocate", [&options] { options.device_memory.preallocate = false; },
      "take a GPU's memory when it is needed, not all of that at the start");
}

void AddCollectives(CLI::App* command, std::string& collectives) {
  command
      ->add_option("--collectives", collectives,
                   "of programs inside a worker: gangway, on CPU devices, or xla, the device "
                   "runtime's. Programs over several workers have Gangway's")
      ->check(CLI::IsMember({"xla", kOwnCollectives}))
      ->capture_default_str();
}

void AddIsolation(CLI::App* command, std::string& isolation) {
  command
      ->add_option(
          "--isolation", isolation,
          "of sessions: none, or process: sessions of different owners share no worker and "
          "no compiler process. A session belongs to its client's certificate, if it has "
          "one, else to nobody else")
      ->check(CLI::IsMember({kNoIsolation, kProcessIsolation}))
      ->capture_default_str();
}

void AddLatencyRequest(CLI::App* command, bool& wanted) {
  command->add_flag_callback(
      "--no-latency-request", [&wanted] { wanted = false; },
      "let idle cores sleep while something is under way; without this, processes then hold "
      "/dev/cpu_dma_latency open, where they may");
}

void AddCompilers(CLI::App* command, CompilerChoice& compilers) {
  command
      ->add_option("--compilers", compilers.count,
                   "compiler processes; the first always runs, the others while they have work")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command
      ->add_option("--compiler-memory", compilers.memory_bytes,
                   "of each compiler, as 4GB: a program that needs more is refused; 0: no limit "
                   "(default: a quarter of this machine's)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  command
      ->add_option("--compile-limit", compilers.limit_s,
                   "seconds after which the compile of a program is ended")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

void AddUp(CLI::App& app, UpOptions& up, int& result) {
  CLI::App* command = app.add_subcommand("up", "start a cluster of processes on this machine");
  command->add_option("--islands", up.islands, "groups of workers that share a fast network")
      ->capture_default_str();
  command->add_option("--workers", up.workers, "per island")->capture_default_str();
  command->add_option("--devices", up.devices, "per worker")->capture_default_str();
  command
      ->add_option("--port", up.port,
                   "of the front door; 0: any free one (default: GANGWAY_PORT, or 38600)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--plugin", up.plugin,
                      "a PJRT plugin: cpu, cuda, cuda12, cuda13 or the path of a .so (default: "
                      "GANGWAY_PLUGIN, or cpu)");
  AddMemory(command, up);
  command
      ->add_option(
          "--head-memory", up.head_memory_bytes,
          "that the head holds for clients, as 4GB: programs, and arrays that pass through "
          "JAX's front door (default: a quarter of this machine's)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--threads", up.threads,
                   "of XLA CPU's thread pool, in each worker and in the compiler (default: devices "
                   "per worker plus cores)")
      ->check(CLI::Range(1, 4096));
  AddCompilers(command, up.compilers);
  AddCollectives(command, up.collectives);
  AddIsolation(command, up.isolation);
  AddLatencyRequest(command, up.latency_request);
  command->add_flag("--separate-schedulers", up.separate_schedulers,
                    "run each island's scheduler in its own process, not in the controller's");
  command->add_flag("--detach", up.detach,
                    "return once the cluster is ready; end it with `gangway down`");
  command->add_option("--state-dir", up.state_root, "default: GANGWAY_STATE_DIR, or ~/.gangway");
  command->add_option("--ready-limit", up.ready_limit_s, "seconds until all processes must be up")
      ->capture_default_str();
  command
      ->add_option("--metrics-port", up.metrics_port,
                   "serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0: off")
      ->check(CLI::Range(0, 65535));
  AddWaits(command, up.waits);
  command->callback([&] { result = Up(up); });
}

void AddRun(CLI::App& app, RunOptions& options, int& result) {
  CLI::App* run = app.add_subcommand(
      "run", "run a JAX script on a cluster: gangway run [--port P] script.py ...");
  AddCluster(run, options.cluster);
  run->add_option("--connect", options.connect, "a controller on another host, as HOST:PORT");
  run->add_option("--tls", options.tls, "for --connect: a folder that `gangway certs` made");
  run->add_option("--door", options.door,
                  "pjrt: by the plugin in the script's process; ifrt: by the client in jaxlib "
                  "(default: GANGWAY_DOOR, or by the cluster's size)")
      ->check(CLI::IsMember({kPjrtDoor, kIfrtDoor}));
  run->prefix_command();
  run->callback([&, run] { result = RunScript(options, run->remaining()); });
}

void AddTools(CLI::App& app, ClusterChoice& cluster, StatusForm& form, int& result) {
  CLI::App* down = app.add_subcommand("down", "end a cluster");
  AddCluster(down, cluster);
  down->callback([&] { result = Down(cluster); });
  CLI::App* status = app.add_subcommand("status", "show workers, memory and sessions");
  AddCluster(status, cluster);
  status->add_flag_callback("--json", [&] { form = StatusForm::kJson; }, "one line for programs");
  status->callback([&] { result = Status(cluster, form); });
  app.add_subcommand("version", "print the version")->callback([] { puts(wire::kBuildVersion); });
}

void AddSeeing(CLI::App& app, SeeingOptions& options, DoctorOptions& doctor, int& result) {
  CLI::App* trace = app.add_subcommand("trace", "write the cluster's recent events, for Perfetto");
  AddCluster(trace, options.cluster);
  trace->add_option("--out", options.out, "the file")->capture_default_str();
  trace->callback([&] { result = WriteTrace(options); });
  CLI::App* why = app.add_subcommand("why", "show what is waiting, for what, and how long");
  AddCluster(why, options.cluster);
  why->add_option("scope", options.scope, "cluster, session N, gang N or array N");
  why->add_flag("--json", options.json, "one line for programs");
  why->callback([&] { result = Why(options); });
  CLI::App* command = app.add_subcommand("doctor", "look for problems, and say what to do");
  AddCluster(command, doctor.cluster);
  command->add_option("--plugin", doctor.plugin,
                      "the PJRT plugin to try, as `up` takes it (default: GANGWAY_PLUGIN, or cpu)");
  command->callback([&] { result = Doctor(doctor); });
}

void AddDrain(CLI::App& app, DrainOptions& drain, int& result) {
  CLI::App* command = app.add_subcommand(
      "drain", "take a worker, or an island, out of use for new work; running work finishes");
  AddCluster(command, drain.cluster);
  command->add_option("target", drain.target, "island0/worker1, or island0 for all of its workers")
      ->required();
  command->add_flag("--undo", drain.undo, "put it back into use");
  command->add_option("--wait", drain.wait_s, "seconds to wait for running work")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->callback([&] { result = Drain(drain); });
}

// Identical islands, as `gangway up` declares them.
struct Uniform {
  uint32_t islands = 1, workers = 1, devices = 1;
  bool separate_schedulers = false;
  std::string collectives = kOwnCollectives;
  std::string isolation = kNoIsolation;
};

void AddAccess(CLI::App* command, AccessFiles& access) {
  command->add_option("--tls", access.tls, "a folder that `gangway certs` made");
  command->add_option("--token-file", access.token_file, "default: the role's in the --tls folder");
}

int StartHead(HeadOptions& head, const AccessFiles& access, const std::string& config) {
  if (config.empty()) return RunHeadRole(head, access, head.control_address);
  auto tools_address = HeadFromConfig(config, head);
  if (tools_address.ok()) return RunHeadRole(head, access, *tools_address);
  fprintf(stderr, "gangway head: %s\n", std::string(tools_address.status().message()).c_str());
  return 1;
}

int StartScheduler(const SchedulerRoleOptions& told, const HostOptions& hosts) {
  if (hosts.config.empty()) return RunSchedulerRole(told);
  auto scheduler = SchedulerFromConfig(hosts);
  if (scheduler.ok()) scheduler->latency_request = told.latency_request;
  if (scheduler.ok()) return RunSchedulerRole(*scheduler);
  fprintf(stderr, "gangway scheduler: %s\n", std::string(scheduler.status().message()).c_str());
  return 1;
}

int StartWorker(const WorkerRoleOptions& told, const HostOptions& hosts) {
  if (hosts.config.empty()) return RunWorkerRole(told);
  auto worker = WorkerFromConfig(hosts);
  if (worker.ok() && told.memory_bytes) worker->memory_bytes = told.memory_bytes;
  if (worker.ok() && told.staging_bytes) worker->staging_bytes = told.staging_bytes;
  if (worker.ok() && told.shared_memory_bytes)
    worker->shared_memory_bytes = told.shared_memory_bytes;
  if (worker.ok() && told.device_memory.fraction != 0)
    worker->device_memory.fraction = told.device_memory.fraction;
  if (worker.ok() && !told.device_memory.preallocate) worker->device_memory.preallocate = false;
  if (worker.ok()) worker->latency_request = told.latency_request;
  if (worker.ok()) worker->leave_limit_s = told.leave_limit_s;
  if (worker.ok()) worker->callback_limit_s = told.callback_limit_s;
  if (worker.ok()) return RunWorkerRole(*worker);
  fprintf(stderr, "gangway worker: %s\n", std::string(worker.status().message()).c_str());
  return 1;
}

void AddHosts(CLI::App& app, CertsOptions& certs, HostOptions& hosts, WorkerRoleOptions& worker,
              int& result) {
  CLI::App* command =
      app.add_subcommand("certs", "make the certificates and tokens of a cluster over hosts");
  command->add_option("folder", certs.folder, "the folder to create")->required();
  command->add_option("--hosts", certs.hosts, "all hosts of the cluster: names or addresses")
      ->delimiter(',');
  command->add_flag("--any-host", certs.any_host,
                    "for a cluster whose hosts are not known beforehand: processes check who issued "
                    "a certificate and its role, and not the host's name");
  command->add_option("--days", certs.days, "how long they are valid")->capture_default_str();
  command->add_option("--add", certs.add,
                      "make the folder of this name in it, for one host or person");
  command->add_option("--role", certs.role, "of --add: controller, scheduler, worker or client");
  command->add_option("--revoke", certs.revoke, "revoke the certificate that --add made");
  command->callback([&] { result = Certs(certs); });

  command = app.add_subcommand(
      "controller", "run controller, schedulers, compiler and front door of a cluster over hosts");
  command->add_option("--config", hosts.config, "the file that declares the cluster")->required();
  command->add_option("--tls", hosts.tls, "a folder that `gangway certs` made");
  command->add_option("--state-dir", hosts.state_root, "default: GANGWAY_STATE_DIR, or ~/.gangway");
  AddLatencyRequest(command, hosts.latency_request);
  command->callback([&] { result = RunController(hosts); });

  command = app.add_subcommand("worker", "run a worker, which owns devices of this host");
  command->add_option("--config", hosts.config, "the file that declares the cluster");
  command->add_option("--island", hosts.island, "of this worker, from 0");
  command->add_option("--index", hosts.index, "of this worker in its island, from 0");
  command->add_option("--tls", hosts.tls, "a folder that `gangway certs` made");
  command->add_option("--state-dir", hosts.state_root,
                      "of the controller, without --tls (default: GANGWAY_STATE_DIR, or "
                      "~/.gangway)");
  AddMemory(command, worker);
  AddLatencyRequest(command, worker.latency_request);
  command
      ->add_option("--leave-limit", worker.leave_limit_s,
                   "seconds for running work when it is told to end (SIGTERM)")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--callback-limit", worker.callback_limit_s,
                   "seconds for a client to return from a host callback (jax.debug.print, ...)")
      ->envname("GANGWAY_CALLBACK_LIMIT")
      ->check(CLI::Range(1, 240))
      ->capture_default_str();
  // A supervisor uses these options instead of --config.
  command->add_option("--control", worker.control_address)->group("");
  command->add_option("--devices", worker.devices)->group("");
  command->add_option("--threads", worker.threads)->group("");
  command->add_option("--heap", worker.heap_bytes)->group("");
  command->add_option("--plugin", worker.plugin)->group("");
  command->add_option("--token-file", worker.access.token_file)->group("");
  command->callback([&] {
    worker.island = hosts.island;
    worker.index = hosts.index;
    worker.access.tls = hosts.tls;
    if (hosts.config.empty() && worker.control_address.empty())
      throw CLI::RequiredError("--config");
    result = StartWorker(worker, hosts);
  });
}

void AddScheduler(CLI::App& app, HostOptions& hosts, SchedulerRoleOptions& scheduler, int& result) {
  CLI::App* command = app.add_subcommand(
      "scheduler", "run an island's scheduler that the cluster's file declares as a process");
  command->add_option("--config", hosts.config, "the file that declares the cluster");
  command->add_option("--island", hosts.island, "from 0");
  command->add_option("--tls", hosts.tls, "a folder that `gangway certs` made");
  command->add_option("--state-dir", hosts.state_root,
                      "of the controller, without --tls (default: GANGWAY_STATE_DIR, or "
                      "~/.gangway)");
  AddLatencyRequest(command, scheduler.latency_request);
  // A supervisor uses these options instead of --config.
  command->add_option("--control", scheduler.control_address)->group("");
  command->add_option("--listen", scheduler.listen_address)->group("");
  command->add_option("--token-file", scheduler.access.token_file)->group("");
  command->callback([&] {
    scheduler.island = hosts.island;
    scheduler.access.tls = hosts.tls;
    if (hosts.config.empty() && scheduler.control_address.empty())
      throw CLI::RequiredError("--config");
    result = StartScheduler(scheduler, hosts);
  });
}

void AddRoles(CLI::App& app, HeadOptions& head, Uniform& uniform, AccessFiles& access,
              HostOptions& hosts, FrontDoorRoleOptions& door, WaitLimits& waits,
              CompilerChoice& compilers, CompilerRoleOptions& compiler, int& result) {
  CLI::App* command =
      app.add_subcommand("head", "controller, schedulers and front door")->group("roles");
  command->add_option("--islands", uniform.islands);
  command->add_option("--workers", uniform.workers);
  command->add_option("--devices", uniform.devices);
  command->add_option("--memory", head.budget_bytes);
  command->add_option("--head-memory", head.memory_bytes);
  command->add_option("--control", head.control_address);
  command->add_option("--front-door", head.front_door_address);
  command->add_option("--front-door-socket", head.front_door_socket);
  command->add_option("--metrics-port", head.metrics_port);
  command->add_option("--compilers", head.compilers);
  command->add_option("--compile-limit", compilers.limit_s);
  AddCollectives(command, uniform.collectives);
  AddIsolation(command, uniform.isolation);
  head.latency_request = true;
  AddLatencyRequest(command, head.latency_request);
  command->add_flag("--separate-schedulers", uniform.separate_schedulers);
  command->add_option("--config", hosts.config, "instead of all that");
  AddAccess(command, access);
  AddWaits(command, waits);
  command->callback([&] {
    head.islands.assign(uniform.islands, std::vector<uint32_t>(uniform.workers, uniform.devices));
    for (uint32_t i = 0; uniform.separate_schedulers && i < uniform.islands; ++i)
      head.remote_schedulers[i] = "an address that its supervisor chose";
    head.own_collectives = uniform.collectives == kOwnCollectives;
    head.isolates = uniform.isolation == kProcessIsolation;
    head.welcome_max = std::chrono::seconds(waits.session_s);
    head.worker_wait_max = std::chrono::seconds(waits.worker_s);
    head.late_after = std::chrono::seconds(waits.late_s);
    head.collective_limit = std::chrono::seconds(waits.collective_s);
    head.compile_limit = std::chrono::seconds(compilers.limit_s);
    head.orphan_limit = std::chrono::seconds(waits.orphan_s);
    head.callback_hold_max = std::chrono::seconds(waits.callback_hold_s);
    head.quarantine_time = std::chrono::seconds(waits.quarantine_s);
    result = StartHead(head, access, hosts.config);
  });
  command = app.add_subcommand("front-door", "JAX's front door, beside a script")->group("roles");
  command->add_option("--connect", door.connect)->required();
  command->add_option("--tls", door.tls)->required();
  command->callback([&] { result = RunFrontDoorRole(door); });
  command = app.add_subcommand("compiler", "compiles programs")->group("roles");
  command->add_option("--control", compiler.control_address)->required();
  command->add_option("--devices", compiler.devices);
  command->add_option("--threads", compiler.threads);
  command->add_option("--plugin", compiler.plugin)->required();
  command->add_option("--cache", compiler.cache_folder);
  command->add_option("--number", compiler.index);
  command->add_option("--scratch", compiler.scratch_folder);
  command->add_option("--memory", compiler.memory_bytes);
  AddAccess(command, compiler.access);
  command->callback([&] { result = RunCompilerRole(compiler); });
}

int Main(int argc, char** argv) {
  CLI::App app("Gangway: one controller for the devices of many workers", "gangway");
  app.require_subcommand(1);
  int result = 0;
  UpOptions up;
  ClusterChoice cluster;
  RunOptions run;
  StatusForm form = StatusForm::kTable;
  SeeingOptions seeing;
  DoctorOptions doctor;
  DrainOptions drain;
  HeadOptions head;
  Uniform uniform;
  AccessFiles access;
  HostOptions hosts;
  FrontDoorRoleOptions door;
  CertsOptions certs;
  WaitLimits waits;
  CompilerChoice compilers;
  WorkerRoleOptions worker;
  CompilerRoleOptions compiler;
  SchedulerRoleOptions scheduler;
  AddUp(app, up, result);
  AddTools(app, cluster, form, result);
  AddRun(app, run, result);
  AddSeeing(app, seeing, doctor, result);
  AddDrain(app, drain, result);
  AddHosts(app, certs, hosts, worker, result);
  AddScheduler(app, hosts, scheduler, result);
  AddRoles(app, head, uniform, access, hosts, door, waits, compilers, compiler, result);
  CLI11_PARSE(app, argc, argv);
  return result;
}

}  // namespace
}  // namespace gangway::cli

int main(int argc, char** argv) {
  // Debian's abseil checks for lock cycles as a debug build does, at each of gRPC's locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return gangway::cli::Main(argc, argv);
}
