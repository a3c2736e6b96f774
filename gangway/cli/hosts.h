// Clusters over real hosts, declared in a file (config.h): the controller's process, which keeps
// its head and its compiler alive, and what a worker's process is told by the same file.
//
// Threading: functions without state. Failure: said on standard error; the exit status.
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
  uint32_t island = 0;  // of a worker or a scheduler
  uint32_t index = 0;   // of a worker
};

// `gangway controller`: runs until told to end. Workers come and go meanwhile.
int RunController(const HostOptions& options);

// Fills in what the file says; its address for tools and for the others.
absl::StatusOr<std::string> HeadFromConfig(const std::string& path, HeadOptions& head);

// FAILED_PRECONDITION: the certificate does not name its host. INVALID_ARGUMENT: the file, or an
// island whose scheduler it does not put on its own.
absl::StatusOr<SchedulerRoleOptions> SchedulerFromConfig(const HostOptions& options);

// FAILED_PRECONDITION: the certificate does not name the worker's host. INVALID_ARGUMENT: the file,
// a worker that it does not declare, or one beyond loopback without TLS (SE-1).
absl::StatusOr<WorkerRoleOptions> WorkerFromConfig(const HostOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HOSTS_H_
