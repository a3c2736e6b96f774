// A transport that uses local links for addresses of unix sockets and another transport for all others. Threading and
// failures are those of the two.
#ifndef GANGWAY_TRANSPORT_LOCAL_OR_NETWORK_H_
#define GANGWAY_TRANSPORT_LOCAL_OR_NETWORK_H_

#include <memory>

#include "gangway/transport/transport.h"

namespace gangway::transport {

std::unique_ptr<Transport> LocalOrNetwork(std::unique_ptr<Transport> network);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_OR_NETWORK_H_
