// The commands that talk to a running cluster. Each prints its own errors and returns the exit
// status.
#ifndef GANGWAY_CLI_COMMANDS_H_
#define GANGWAY_CLI_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"

namespace gangway::cli {

// A cluster of this host, by its port and state folder, or one whose controller is at an address. `port` negative:
// GANGWAY_PORT or the default. `state_root` empty: the default.
struct ClusterChoice {
  int port = -1;
  std::string state_root;
  std::string
      connect;  // host:port; empty: GANGWAY_ADDRESS, unless `port` or `state_root` says otherwise
  std::string tls;  // the TLS folder for the address

  std::string Address() const;  // of the chosen controller; empty: the cluster is of this host
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
struct StatusOptions {
  ClusterChoice cluster;
  StatusForm form = StatusForm::kTable;
  std::optional<uint32_t> wait_s;  // for the controller and all declared processes
};
// With a wait, 1 if one of them is absent after it; its name is the error.
int Status(const StatusOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_COMMANDS_H_
