// Implementation of by_address.h.
#include "gangway/transport/by_address.h"

#include <utility>

#include "gangway/base/status.h"
#include "gangway/transport/local_or_network.h"

namespace gangway::transport {

absl::StatusOr<std::unique_ptr<Transport>> NewTransportByAddress(GrpcOptions options) {
  options.admits_peers = true;
  GANGWAY_ASSIGN_OR_RETURN(auto network, NewGrpcTransport(std::move(options)));
  return LocalOrNetwork(std::move(network));
}

}  // namespace gangway::transport
