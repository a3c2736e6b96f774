// `gangway up`: runs and supervises a cluster of real processes on this machine.
#ifndef GANGWAY_CLI_UP_H_
#define GANGWAY_CLI_UP_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/cli/config.h"
#include "gangway/cli/supervisor.h"
#include "gangway/device/device_memory.h"

namespace gangway::cli {

// How long work waits, in seconds, before an error or, for `late_s`, a line in the log names what is absent; and how
// long work may hold what others wait for.
struct WaitLimits {
  uint32_t session_s = 15;      // a new session, for the declared workers
  uint32_t worker_s = 20;       // work, for a worker that is down
  uint32_t late_s = 5;          // members of a gang in a collective, for another member
  uint32_t collective_s = 300;  // likewise; then the gang is aborted
  uint32_t orphan_s =
      10;  // work of a session that has ended, on a device; then its worker is restarted
  uint32_t callback_hold_s = 120;  // a session's host callbacks, on a device that others wait for
  uint32_t quarantine_s = 600;     // a program that has ended workers is refused; 0: none is blamed
};

struct UpOptions {
  uint32_t islands = 1;
  uint32_t workers = 1;  // per island
  uint32_t devices = 1;  // per worker
  int port = -1;       // of the front door; 0 = any free one; negative: GANGWAY_PORT or the default
  std::string plugin;  // as FindPlugin takes it
  // Simulated devices, without a plugin: the most workers of an island that share a process; 0: real devices.
  uint32_t simulated = 0;
  int threads = 0;  // of XLA CPU's pool in each worker and the compiler; 0 = DefaultThreads()
  // Not set: PlanWorker decides.
  std::optional<uint64_t> memory_bytes;         // per device; 0 = no limit
  std::optional<uint64_t> staging_bytes;        // per worker
  std::optional<uint64_t> shared_memory_bytes;  // per worker; 0 = none
  std::optional<uint64_t> head_memory_bytes;    // not set: PlanHead decides
  device::DeviceMemory device_memory;           // that each worker's plugin takes
  bool separate_schedulers = false;             // each a process of its own
  std::string collectives = kOwnCollectives;
  std::string isolation = kNoIsolation;
  CompilerChoice compilers;
  bool latency_request = true;  // held by all processes (base/latency_request.h)
  bool detach = false;
  std::string state_root;
  uint32_t ready_limit_s = 30;
  WaitLimits waits;
  int metrics_port = 0;  // of Prometheus metrics, on loopback; 0 = none
};

// The executable that runs the roles: this one, or GANGWAY_ROLE_BINARY in tests.
std::string RoleBinary();

// The size of XLA CPU's thread pool for workers of `devices` devices on hosts of `cores` cores: every device may have a
// thread blocked in a collective while every core computes. More would cost time (docs/internals/thread-pool.md).
int DefaultThreads(uint32_t devices, unsigned cores);

// Flags that let a head's front door listen in the state folder, too, where the folder's name is not too long for that.
std::vector<std::string> FrontDoorSocket(const StateDir& dir);

// The compiler and its spares. `plugin`: empty for simulated devices. `access`: flags that name the token and, with
// TLS, its folder.
std::vector<ChildSpec> CompilerChildren(const CompilerChoice& compilers, uint32_t devices,
                                        int threads, const std::string& plugin, const StateDir& dir,
                                        const std::vector<std::string>& access);

// Checks counts and plugin, without starting a process.
absl::Status CheckUp(const UpOptions& options);

// Returns a TCP port of 127.0.0.1 that is free now. `wanted` 0: any. UNAVAILABLE: in use.
absl::StatusOr<int> ClaimPort(int wanted);

// The head, the compiler and its spares, then per island its separate scheduler, if any, and its workers.
// `options.port` must be a real port, not 0.
std::vector<ChildSpec> Children(const UpOptions& options, const StateDir& dir);

// Blocks while the cluster runs (with `detach`: until it is ready). Returns the exit status.
int Up(UpOptions options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_UP_H_
