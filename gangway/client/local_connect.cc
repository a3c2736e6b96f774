// Implementation of local_connect.h.
#include "gangway/client/local_connect.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/client/connect.h"
#include "gangway/transport/local/local.h"

namespace gangway {

absl::StatusOr<std::unique_ptr<Client>> ConnectLocal(const LocalClientOptions& options) {
  if (!transport::IsLocalAddress(options.address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address '", options.address, "' names no unix socket of this host"));
  }
  ClientOptions client;
  client.controller_address = options.address;
  client.token = options.token;
  client.name = options.name;
  client.reports_ends = options.reports_ends;
  client.owned_transport = transport::NewLocalTransport();
  client.control = client.data = client.owned_transport.get();
  return Connect(client);
}

}  // namespace gangway
