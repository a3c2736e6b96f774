// What a cluster's file or options declare of each worker, and how a process becomes that worker: from the same file,
// or by asking the controller, which needs nothing but its address, the worker's token and an index.
//
// Threading: functions without state; Become may resolve names, and blocks as long. Failure: a status that says what to
// do.
#ifndef GANGWAY_CLI_DECLARATION_H_
#define GANGWAY_CLI_DECLARATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/cli/access.h"
#include "gangway/cli/config.h"
#include "gangway/cli/roles.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

// What the command line of a worker says of its place. Empty or 0: not said.
struct WorkerPlace {
  std::optional<uint32_t> island;  // not set: `index` counts through the workers of all islands
  uint32_t index = 0;
  std::string host;               // where others reach it
  std::optional<int> data_port;   // 0: any free one
  uint32_t workers_per_host = 0;  // which share its host's memory
  std::string plugin;             // as FindPlugin takes it
};

// By island and index.
using Declarations = std::vector<std::vector<wire::WorkerDeclaration>>;
Declarations Declare(const ClusterConfig& config);

// The worker that a process asks for. INVALID_ARGUMENT: none is declared there; names the declared ones.
absl::StatusOr<wire::WorkerDeclaration> FindDeclaration(const Declarations& declared,
                                                        std::optional<uint32_t> island,
                                                        uint32_t index);

// Fills in `worker`, whose control address is the controller's and whose settings of memory are those of its command
// line, or not set. FAILED_PRECONDITION: the certificate does not name the worker's host. INVALID_ARGUMENT: it would
// listen beyond loopback without TLS (SE-1), or run a plugin that a controller without TLS chose by its path.
// UNAVAILABLE: this host's address is not found. Otherwise the errors of FindPlugin.
absl::Status Become(const wire::WorkerDeclaration& declared, const WorkerPlace& place,
                    WorkerRoleOptions& worker);

// Checks SE-1 before anything is started: an address beyond loopback needs TLS. With TLS, checks that peers will accept
// this host's certificate.
absl::Status CheckReach(const std::string& host, int port, const std::string& tls);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_DECLARATION_H_
