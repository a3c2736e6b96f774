// The `gangway` command: parses the command line and runs the subcommand.
#include <cstdio>
#include <vector>

#include "absl/synchronization/mutex.h"
#include <CLI/CLI.hpp>

#include "gangway/cli/certs.h"
#include "gangway/cli/commands.h"
#include "gangway/cli/config.h"
#include "gangway/cli/doctor.h"
#include "gangway/cli/drain.h"
#include "gangway/cli/front_door.h"
#include "gangway/cli/host_commands.h"
#include "gangway/cli/hosts.h"
#include "gangway/cli/kubernetes_command.h"
#include "gangway/cli/options.h"
#include "gangway/cli/roles.h"
#include "gangway/cli/run.h"
#include "gangway/cli/seeing.h"
#include "gangway/cli/up.h"
#include "gangway/wire/version.h"

namespace gangway::cli {
namespace {

void AddUp(CLI::App& app, UpOptions& up, int& result) {
  CLI::App* command = app.add_subcommand("up", "start a cluster of processes on this machine");
  AddShape(command, up);
  AddFrontDoorPort(command, up.port);
  command->add_option("--plugin", up.plugin,
                      "a PJRT plugin: cpu, cuda, cuda12, cuda13 or the path of a .so (default: "
                      "GANGWAY_PLUGIN, or cpu)");
  command
      ->add_option("--simulate", up.simulated,
                   "simulated devices, which run declared programs of C++ clients and cost a few "
                   "threads in all: the most workers of an island that share a process")
      ->check(CLI::Range(1, 4096))
      ->excludes("--plugin");
  AddMemory(command, up);
  AddHeadMemory(command, up.head_memory_bytes);
  command
      ->add_option("--threads", up.threads,
                   "of XLA CPU's thread pool, in each worker and in the compiler (default: devices "
                   "per worker plus cores)")
      ->check(CLI::Range(1, 4096));
  AddCompilers(command, up.compilers);
  AddCollectives(command, up.collectives);
  AddIsolation(command, up.isolation);
  AddLatencyRequest(command, up.latency_request);
  AddSpin(command);
  command->add_flag("--separate-schedulers", up.separate_schedulers,
                    "run each island's scheduler in its own process, not in the controller's");
  command->add_flag("--detach", up.detach,
                    "return once the cluster is ready; end it with `gangway down`");
  AddStateDir(command, up.state_root);
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
  AddAnyCluster(run, options.cluster);
  run->add_option("--door", options.door,
                  "pjrt: by the plugin in the script's process; ifrt: by the client in jaxlib "
                  "(default: GANGWAY_DOOR, or by the cluster's size)")
      ->check(CLI::IsMember({kPjrtDoor, kIfrtDoor}));
  run->prefix_command();
  run->callback([&, run] { result = RunScript(options, run->remaining()); });
}

void AddTools(CLI::App& app, ClusterChoice& cluster, StatusOptions& options, int& result) {
  CLI::App* down = app.add_subcommand("down", "end a cluster");
  AddCluster(down, cluster);
  down->callback([&] { result = Down(cluster); });
  CLI::App* status = app.add_subcommand("status", "show workers, memory and sessions");
  AddAnyCluster(status, options.cluster);
  status->add_flag_callback(
      "--json", [&] { options.form = StatusForm::kJson; }, "one line for programs");
  status
      ->add_option("--wait", options.wait_s,
                   "seconds to wait until all declared processes are up; the exit status is 1, and "
                   "the error names the absent ones, if they are not")
      ->check(CLI::Range(0, 86400));
  status->callback([&] { result = Status(options); });
  app.add_subcommand("version", "print the version")->callback([] { puts(wire::kBuildVersion); });
}

void AddSeeing(CLI::App& app, SeeingOptions& options, DoctorOptions& doctor, int& result) {
  CLI::App* trace = app.add_subcommand("trace", "write the cluster's recent events, for Perfetto");
  AddAnyCluster(trace, options.cluster);
  trace->add_option("--out", options.out, "the file")->capture_default_str();
  trace->callback([&] { result = WriteTrace(options); });
  CLI::App* why = app.add_subcommand("why", "show what is waiting, for what, and how long");
  AddAnyCluster(why, options.cluster);
  why->add_option("scope", options.scope, "cluster, session N, gang N or array N");
  why->add_flag("--json", options.json, "one line for programs");
  why->callback([&] { result = Why(options); });
  CLI::App* command = app.add_subcommand("doctor", "look for problems, and say what to do");
  AddAnyCluster(command, doctor.cluster);
  command->add_option("--plugin", doctor.plugin,
                      "the PJRT plugin to try, as `up` takes it (default: GANGWAY_PLUGIN, or cpu)");
  command->callback([&] { result = Doctor(doctor); });
}

void AddDrain(CLI::App& app, DrainOptions& drain, int& result) {
  CLI::App* command = app.add_subcommand(
      "drain", "take a worker, or an island, out of use for new work; running work finishes");
  AddAnyCluster(command, drain.cluster);
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
  auto tools_address = HeadFromConfig(config, access.tls, head);
  if (tools_address.ok()) return RunHeadRole(head, access, *tools_address);
  fprintf(stderr, "gangway head: %s\n", std::string(tools_address.status().message()).c_str());
  return 1;
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
  CLI::Option* plugin = command->add_option("--plugin", compiler.plugin);
  command->add_flag("--simulate", compiler.simulated)->excludes(plugin);
  command->add_option("--cache", compiler.cache_folder);
  command->add_option("--number", compiler.index);
  command->add_option("--scratch", compiler.scratch_folder);
  command->add_option("--memory", compiler.memory_bytes);
  AddAccess(command, compiler.access);
  command->callback([&] {
    if (compiler.plugin.empty() && !compiler.simulated) throw CLI::RequiredError("--plugin");
    result = RunCompilerRole(compiler);
  });
}

int Main(int argc, char** argv) {
  CLI::App app("Gangway: one controller for the devices of many workers", "gangway");
  app.require_subcommand(1);
  int result = 0;
  UpOptions up;
  ClusterChoice cluster;
  RunOptions run;
  StatusOptions status;
  SeeingOptions seeing;
  DoctorOptions doctor;
  DrainOptions drain;
  HeadOptions head;
  Uniform uniform;
  AccessFiles access;
  HostOptions hosts;
  ControllerOptions controller;
  FrontDoorRoleOptions door;
  CertsOptions certs;
  WaitLimits waits;
  CompilerChoice compilers;
  WorkerRoleOptions worker;
  CompilerRoleOptions compiler;
  SchedulerRoleOptions scheduler;
  KubernetesOptions kubernetes;
  AddUp(app, up, result);
  AddTools(app, cluster, status, result);
  AddRun(app, run, result);
  AddSeeing(app, seeing, doctor, result);
  AddDrain(app, drain, result);
  AddCerts(app, certs, result);
  AddController(app, controller, waits, result);
  AddWorker(app, hosts, worker, result);
  AddScheduler(app, hosts, scheduler, result);
  AddKubernetes(app, kubernetes, result);
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
