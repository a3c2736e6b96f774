// Clusters over real hosts, declared in a file (config.h): runs the controller's process, which
// keeps its head and its compiler alive, and derives the options of workers and schedulers.
//
// Threading: functions without state. Failure: a status, or a message on standard error and the
// exit status.
#ifndef GANGWAY_CLI_HOSTS_H_
#define GANGWAY_CLI_HOSTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/cli/head.h"
#include "gangway/cli/roles.h"

namespace gangway::cli {

struct HostOptions {
  std::string config;  // path
  std::string tls;
  std::string state_root;
  uint32_t island = 0;          // of a worker or a scheduler
  uint32_t index = 0;           // of a worker
  bool latency_request = true;  // of a controller: the cluster holds it, unless the file says no
};

// `gangway controller`: runs until told to end, independent of its workers.
int RunController(const HostOptions& options);

// Fills in `head` from the file. Returns its control address for tools and other processes.
absl::StatusOr<std::string> HeadFromConfig(const std::string& path, HeadOptions& head);

// FAILED_PRECONDITION: the certificate does not name its host. INVALID_ARGUMENT: the file is
// wrong, or declares no separate scheduler for the island.
absl::StatusOr<SchedulerRoleOptions> SchedulerFromConfig(const HostOptions& options);

// FAILED_PRECONDITION: the certificate does not name the worker's host. INVALID_ARGUMENT: the file
// is wrong, does not declare the worker, or puts it beyond loopback without TLS (SE-1).
absl::StatusOr<WorkerRoleOptions> WorkerFromConfig(const HostOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HOSTS_H_
