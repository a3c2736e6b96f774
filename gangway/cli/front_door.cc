// Implementation of StartFrontDoor (front_door.h); roles.cc has RunFrontDoorRole.
#include "gangway/cli/front_door.h"

namespace gangway::cli {

absl::StatusOr<std::unique_ptr<ifrt::IfrtServer>> StartFrontDoor(
    const std::string& address, const transport::Verifiers& verifiers, const ClientOptions& client,
    const ifrt::IfrtServerOptions& server) {
  ifrt::IfrtServerOptions guarded = server;
  guarded.admit = [verifiers](const ifrt::SessionRequest& request) {
    return verifiers.Check(wire::ROLE_CLIENT, request.token, request.name);
  };
  return ifrt::IfrtServer::Start(
      address,
      [client](const ifrt::SessionRequest& request) -> absl::StatusOr<std::unique_ptr<Client>> {
        ClientOptions options = client;
        options.name = request.name;
        return Connect(options);
      },
      guarded);
}

}  // namespace gangway::cli
