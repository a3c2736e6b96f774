// The main functions of the processes that `gangway up` starts. Each runs until SIGTERM or SIGINT,
// or until it cannot continue, logs to standard error and returns the exit status.
#ifndef GANGWAY_CLI_ROLES_H_
#define GANGWAY_CLI_ROLES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gangway/cli/access.h"
#include "gangway/cli/head.h"
#include "gangway/device/device_memory.h"
#include "gangway/transport/transport.h"

namespace gangway::cli {

// Announces itself on standard output (announcement.h). `tools_address`: the control address as
// tools and other processes of this host reach it; port 0 stands for the real one.
int RunHeadRole(HeadOptions options, const AccessFiles& access, const std::string& tools_address);

// Without a controller: end, so that the supervisor restarts the process, or retry forever.
enum class WhenLost { kEnd, kReturn };

struct WorkerRoleOptions {
  // Asks the controller for what the rest does not say, before the worker begins; empty: all is said.
  std::function<absl::Status(const Access&, transport::Transport&, WorkerRoleOptions&)> ask;
  std::string control_address;  // of the scheduler, or of the controller that contains it
  bool own_scheduler = false;   // the scheduler is a separate process
  AccessFiles access = {.role = wire::ROLE_WORKER};
  uint32_t island = 0;
  uint32_t index = 0;
  int devices = 1;
  uint32_t simulated =
      0;  // workers with simulated devices in this process, from `index` on; 0: none, it is one worker
  int threads = 64;  // of XLA CPU's pool
  // Of memory (memory_plan.h). Not set: the worker's own defaults, as if it had the host alone.
  std::optional<uint64_t> memory_bytes;  // per device; 0 = no limit
  std::optional<uint64_t> staging_bytes;
  std::optional<uint64_t> shared_memory_bytes;  // 0 = none
  device::DeviceMemory device_memory;           // that the plugin takes
  uint64_t heap_bytes = 0;                      // live and kept blocks of malloc; 0 = no limit
  std::string plugin;
  int leave_limit_s = 30;          // for running work when it is told to end
  int leave_status = 0;            // its exit status then
  int callback_limit_s = 120;      // for the reply of a client to a host callback
  std::string host = "localhost";  // where others reach it
  std::string
      data_listen_address;      // "": a unix socket if the control address is one, else loopback
  bool latency_request = true;  // held while something is under way, if the cluster does
  WhenLost when_lost = WhenLost::kEnd;
  int connect_limit_s = 0;  // for the controller's first answer, with kReturn; 0: no limit
};
int RunWorkerRole(const WorkerRoleOptions& options);

struct SchedulerRoleOptions {
  std::string control_address;  // the controller's
  std::string listen_address;   // for the island's workers
  AccessFiles access = {.role = wire::ROLE_SCHEDULER};
  uint32_t island = 0;
  bool latency_request = true;  // as in WorkerRoleOptions
  WhenLost when_lost = WhenLost::kEnd;
};
// Announces its workers' events on standard output.
int RunSchedulerRole(const SchedulerRoleOptions& options);

struct CompilerRoleOptions {
  std::string control_address;
  AccessFiles access = {.role = wire::ROLE_COMPILER};
  int devices = 1;         // the count of a worker; of simulated ones, of the largest program
  bool simulated = false;  // compiles for simulated devices, without a plugin
  int threads = 64;        // of XLA CPU's pool, as in the workers
  std::string plugin;
  std::string cache_folder;  // "" = no cache on disk
  uint32_t index =
      0;  // of the cluster's compilers; beyond 0: a spare, which ends when the head lets it go
  std::string
      scratch_folder;  // of this process: made or emptied at its start; its files are removed by its supervisor
  uint64_t memory_bytes = 0;  // of the process; 0 = no limit
};
// On CPU devices, the process confines itself (compiler/confinement.h) before it takes a program.
int RunCompilerRole(const CompilerRoleOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ROLES_H_
