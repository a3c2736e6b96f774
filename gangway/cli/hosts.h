// Clusters over real hosts, declared in a file (config.h) or by options: runs the controller's process, which keeps its
// head and its compiler alive, and derives the options of workers and schedulers.
//
// Threading: functions without state. Failure: a status, or a message on standard error and the exit status.
#ifndef GANGWAY_CLI_HOSTS_H_
#define GANGWAY_CLI_HOSTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/cli/config.h"
#include "gangway/cli/declaration.h"
#include "gangway/cli/head.h"
#include "gangway/cli/roles.h"

namespace gangway::cli {

// A scheduler's or a worker's command line. A worker with neither `config` nor `connect` belongs to a cluster of this
// host.
struct HostOptions {
  std::string config;   // path
  std::string connect;  // the controller, as host:port
  int port =
      -1;  // of the cluster's front door, without `config`; negative: GANGWAY_PORT or the default
  std::string tls;
  std::string state_root;  // of the controller, for the token without TLS
  WorkerPlace place;       // a scheduler's: the island only
};

struct ControllerOptions {
  std::string config;  // path; empty: the cluster is declared by the following
  uint32_t islands = 1;
  uint32_t workers = 1;  // per island
  uint32_t devices = 1;  // per worker
  std::string listen;    // host:port; empty: the default port on loopback; port 0: any free one
  std::string
      host;  // under which others reach the controller; empty: the host of `listen`, or this host's address
  int port = -1;  // of the front door; 0: any free one; negative: GANGWAY_PORT or the default
  ClusterConfig cluster;  // the other settings

  std::string tls;
  std::string state_root;
  std::string address_file;     // gets host:port when the controller listens; empty: none
  uint32_t ready_limit_s = 0;   // until all workers must be up; 0: no limit
  int leave_status = 0;         // its exit status when it was told to end
  bool latency_request = true;  // the cluster holds it, unless the file says no
};

// `gangway controller`: runs until told to end, independent of its workers.
int RunController(const ControllerOptions& options);

// Fills in `head` from the file. Returns its control address for processes of this host. `tls`: its folder, or empty.
absl::StatusOr<std::string> HeadFromConfig(const std::string& path, const std::string& tls,
                                           HeadOptions& head);

// FAILED_PRECONDITION: the certificate does not name its host. INVALID_ARGUMENT: the file is
// wrong, or declares no separate scheduler for the island.
absl::StatusOr<SchedulerRoleOptions> SchedulerFromConfig(const HostOptions& options);

// Of a worker that the file declares; `told`: what its command line says of memory and limits. Errors: those of
// ReadConfig, FindDeclaration and Become.
absl::StatusOr<WorkerRoleOptions> WorkerFromConfig(const HostOptions& options,
                                                   const WorkerRoleOptions& told);

// Of a worker that asks its controller, once that answers. NOT_FOUND: no cluster runs on this host.
absl::StatusOr<WorkerRoleOptions> WorkerByAddress(const HostOptions& options,
                                                  const WorkerRoleOptions& told);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HOSTS_H_
