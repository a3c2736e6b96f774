// The JAX front door of the `gangway` command. It serves each client that presents the token, over
// a session of the cluster. It runs in the head and, for `gangway run --connect`, beside the
// script.
//
// Threading: StartFrontDoor may be called from any thread; the server has its own threads.
#ifndef GANGWAY_CLI_FRONT_DOOR_H_
#define GANGWAY_CLI_FRONT_DOOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/client/connect.h"
#include "gangway/frontdoor/ifrt/server.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {

// `verifiers`: of the clients' tokens. `client`: the options of each session, except its name.
// Errors: those of IfrtServer::Start.
absl::StatusOr<std::unique_ptr<ifrt::IfrtServer>> StartFrontDoor(
    const std::string& address, const transport::Verifiers& verifiers, const ClientOptions& client,
    const ifrt::IfrtServerOptions& server = {});

struct FrontDoorRoleOptions {
  std::string connect;  // the controller's host:port
  std::string tls;
};

// The main function of the process beside a script. Announces its address on standard output;
// clients present GANGWAY_TOKEN. Ends with its parent or on SIGTERM. Returns the exit status.
int RunFrontDoorRole(const FrontDoorRoleOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_FRONT_DOOR_H_
