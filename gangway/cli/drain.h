// `gangway drain`: takes workers of a running cluster out of use for new work, or puts them back.
// Prints its own errors and returns the exit status.
#ifndef GANGWAY_CLI_DRAIN_H_
#define GANGWAY_CLI_DRAIN_H_

#include <string>

#include "absl/status/statusor.h"

#include "gangway/cli/commands.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::cli {

struct DrainOptions {
  ClusterChoice cluster;
  std::string target;  // "island0/worker1", or "island0" for all of its workers
  bool undo = false;
  int wait_s = 60;  // for running work
};

// 0: drained and idle, or undone. 1: an error, or work still runs after wait_s; that work and the
// drain continue.
int Drain(const DrainOptions& options);

// INVALID_ARGUMENT: `target` names neither a worker nor an island.
absl::StatusOr<wire::DrainRequest> ParseTarget(const std::string& target);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_DRAIN_H_
