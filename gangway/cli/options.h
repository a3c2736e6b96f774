// The options that several commands have in common, as CLI11 takes them.
//
// Threading: called from the main thread, before any other exists; what is given outlives the command. Failure: CLI11
// ends the parse with its error.
#ifndef GANGWAY_CLI_OPTIONS_H_
#define GANGWAY_CLI_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "gangway/cli/commands.h"
#include "gangway/cli/config.h"
#include "gangway/cli/up.h"

namespace gangway::cli {

void AddStateDir(CLI::App* command, std::string& state_root);
void AddCluster(CLI::App* command, ClusterChoice& cluster);  // --port, --state-dir
void AddTls(CLI::App* command, std::string& tls);
void AddAnyCluster(CLI::App* command, ClusterChoice& cluster);  // those, and --connect
void AddWaits(CLI::App* command, WaitLimits& waits);
void AddCollectives(CLI::App* command, std::string& collectives);
void AddIsolation(CLI::App* command, std::string& isolation);
void AddLatencyRequest(CLI::App* command, bool& wanted);
void AddSpin(CLI::App* command);  // for this process and those that it starts, by their environment
void AddCompilers(CLI::App* command, CompilerChoice& compilers);
void AddDeviceMemory(CLI::App* command, device::DeviceMemory& memory);
// For commands that start a cluster.
void AddFrontDoorPort(CLI::App* command, int& port);
void AddHeadMemory(CLI::App* command, std::optional<uint64_t>& bytes);

// The shape of a cluster that the command starts: UpOptions, ControllerOptions.
template <typename Options>
void AddShape(CLI::App* command, Options& options) {
  command->add_option("--islands", options.islands, "groups of workers that share a fast network")
      ->capture_default_str();
  command->add_option("--workers", options.workers, "per island")->capture_default_str();
  command->add_option("--devices", options.devices, "per worker")->capture_default_str();
}

// Of a command that starts workers on this host: UpOptions, WorkerRoleOptions.
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
  AddDeviceMemory(command, options.device_memory);
}

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_OPTIONS_H_
