// ConnectClient of the public header (include/gangway/connect.h), with transports of the session's own.
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/client/connect.h"
#include "gangway/client/include/gangway/connect.h"
#include "gangway/transport/library/loaded.h"
#include "gangway/transport/local/local.h"
#include "gangway/transport/local_or_network.h"
#include "gangway/transport/traffic.h"

namespace gangway {
namespace {

constexpr int kPortMax = 65535;

// Of "host:port". The network's transport checks the rest, once its library is loaded.
absl::Status CheckForm(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon != 0 && address.find('/') == std::string::npos &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port <= kPortMax)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the address '", address,
                   "' is neither a unix socket (unix:/path, unix-abstract:name) nor host:port"));
}

absl::StatusOr<std::unique_ptr<transport::Transport>> TransportFor(const ClusterOptions& options) {
  if (transport::IsLocalAddress(options.address)) return transport::NewLocalTransport();
  GANGWAY_RETURN_IF_ERROR(CheckForm(options.address));
  GANGWAY_ASSIGN_OR_RETURN(const auto* links, transport::LoadGrpcLibrary());
  GANGWAY_ASSIGN_OR_RETURN(auto network, transport::NewLoadedTransport(*links, options.tls));
  return transport::LocalOrNetwork(std::move(network));
}

absl::StatusOr<std::unique_ptr<Client>> Open(const ClusterOptions& options) {
  ClientOptions client;
  client.controller_address = options.address;
  client.token = options.token;
  client.name = options.name;
  client.reports_ends = options.reports_ends;
  client.captures_bursts = options.captures_bursts;
  GANGWAY_ASSIGN_OR_RETURN(client.owned_transport, TransportFor(options));
  client.control = client.data = client.owned_transport.get();
  return Connect(client);
}

}  // namespace

Result<std::unique_ptr<Client>> ConnectClient(const ClusterOptions& options) {
  return ToResult(Open(options));
}

Traffic TrafficOfProcess() {
  const transport::Traffic traffic = transport::TrafficOfProcess();
  return {.frames_sent = traffic.frames_sent,
          .bytes_sent = traffic.bytes_sent,
          .frames_received = traffic.frames_received,
          .bytes_received = traffic.bytes_received};
}

}  // namespace gangway
