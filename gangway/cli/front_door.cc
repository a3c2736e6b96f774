// Implementation of StartFrontDoor (front_door.h); roles.cc has RunFrontDoorRole.
#include "gangway/cli/front_door.h"

#include "gangway/base/status.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {

absl::StatusOr<std::unique_ptr<ifrt::IfrtServer>> StartFrontDoor(
    const std::string& address, const std::string& token, const ClientOptions& client,
    const ifrt::IfrtServerOptions& server) {
  return ifrt::IfrtServer::Start(
      address,
      [token,
       client](const ifrt::SessionRequest& request) -> absl::StatusOr<std::unique_ptr<Client>> {
        GANGWAY_RETURN_IF_ERROR(transport::CheckClusterToken(token, request.token, request.name));
        ClientOptions options = client;
        options.name = request.name;
        return Connect(options);
      },
      server);
}

}  // namespace gangway::cli
