// The commands that talk to a running cluster. Each prints its own errors and returns the exit
// status.
#ifndef GANGWAY_CLI_COMMANDS_H_
#define GANGWAY_CLI_COMMANDS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"

namespace gangway::cli {

// `port` negative: GANGWAY_PORT or the default. `state_root` empty: the default.
struct ClusterChoice {
  int port = -1;
  std::string state_root;
};

// A tool's access to the controller of a cluster.
struct ControlDoor {
  std::unique_ptr<transport::Transport> transport;
  std::string address;
  std::string token;
};

// For the chosen cluster. NOT_FOUND: no cluster runs. UNAVAILABLE: it is still starting. Otherwise
// the errors of ReadAccess.
absl::StatusOr<ControlDoor> OpenControl(const ClusterChoice& cluster);

// Ends the cluster and waits until its supervisor is gone.
int Down(const ClusterChoice& cluster);

enum class StatusForm { kTable, kJson };
int Status(const ClusterChoice& cluster, StatusForm form);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_COMMANDS_H_
