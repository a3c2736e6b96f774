// The file that declares a cluster over real hosts (cluster.toml); docs/guides/hosts.md shows one.
//
// A worker's place may name its host, or leave it open: then any host that presents the worker's token
// claims the place by its index.
//
// Threading: functions without state. Failure: INVALID_ARGUMENT with file, line, the mistake and
// what to write instead; NOT_FOUND if the file cannot be read.
#ifndef GANGWAY_CLI_CONFIG_H_
#define GANGWAY_CLI_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/device/device_memory.h"

namespace gangway::cli {

// Below the 600 s for which a device's thread waits.
inline constexpr uint32_t kCollectiveLimitMaxS = 540;

// Whose collectives the programs inside a worker have, unless the user asks for the device runtime's ("xla").
inline constexpr char kOwnCollectives[] = "gangway";

// Of the sessions of different owners: they share workers, or no process of a worker or compiler.
inline constexpr char kNoIsolation[] = "none";
inline constexpr char kProcessIsolation[] = "process";

struct HostWorker {
  std::string host;  // where peers reach its data port; empty: any host may claim the place
  uint32_t devices = 1;
  int data_port = 0;  // 0 = any free one
};

// A scheduler that runs in its own process.
struct HostScheduler {
  std::string host = "127.0.0.1";  // where the island's workers reach it
  int port = 0;
};

struct HostIsland {
  std::vector<HostWorker> workers;
  std::optional<HostScheduler> scheduler;  // none: part of the controller
};

struct CompilerChoice {
  uint32_t count = 2;                    // processes; all but the first run on demand
  std::optional<uint64_t> memory_bytes;  // of each; 0 = no limit; not set = PlanCompiler decides
  uint32_t limit_s = 600;                // of one program's compile
  bool caches = true;                    // on disk, over all sessions
};

struct ClusterConfig {
  std::string controller_host = "127.0.0.1";  // where workers and clients reach the controller
  std::string controller_listen;   // the host it listens at; empty: ListenHost(controller_host)
  int control_port = 38601;        // 0 = any free one
  int front_door_port = 38600;     // of the JAX front door, on loopback
  uint32_t client_silence_s = 60;  // a client whose host vanishes is lost
  uint32_t session_wait_s = 15;
  uint32_t worker_wait_s = 20;
  uint32_t late_after_s = 5;
  uint32_t collective_limit_s = 300;
  uint32_t orphan_limit_s = 10;
  uint32_t callback_hold_s = 120;
  uint32_t quarantine_s = 600;  // of programs that end workers; 0 = none
  std::string collectives = kOwnCollectives;
  std::string isolation = kNoIsolation;
  CompilerChoice compilers;
  bool latency_request = true;           // held by all processes (base/latency_request.h)
  std::optional<uint64_t> memory_bytes;  // per device; 0 = no limit; not set = PlanWorker decides
  std::optional<uint64_t> head_memory_bytes;  // not set = PlanHead decides
  // Of XLA CPU's pool in every worker and the compiler. Declared, because results depend on it and the
  // hosts' cores are not known here: at least the devices and the cores of the largest worker.
  int threads = 64;
  uint32_t workers_per_host = 0;       // of workers without a declared host; 0 = not known here
  std::string plugin;                  // as FindPlugin takes it
  device::DeviceMemory device_memory;  // that every worker's plugin takes
  std::vector<HostIsland> islands;

  std::string ControlAddress() const;                // where to connect
  std::string ControlListenAddress() const;          // where the controller listens
  uint32_t DevicesMax() const;                       // of one worker
  uint64_t Devices() const;                          // of all workers
  std::vector<std::vector<uint32_t>> Shape() const;  // devices of each worker of each island
};

// `host` itself if it is loopback, else the any-address, "0.0.0.0" or "::".
std::string ListenHost(const std::string& host);
std::string BracketedHost(const std::string& host);          // "[::1]", and others as they are
std::string HostAndPort(const std::string& host, int port);  // "[::1]:5", "a.example:5"

// `path` is for messages.
absl::StatusOr<ClusterConfig> ParseConfig(std::string_view text, const std::string& path);
// The text of a file that declares the cluster: ParseConfig gives the same cluster.
std::string ToToml(const ClusterConfig& config);
absl::StatusOr<ClusterConfig> ReadConfig(const std::string& path);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CONFIG_H_
