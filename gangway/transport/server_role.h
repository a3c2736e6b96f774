// What a process checks of the server that it has connected to, before it sends its token: where certificates name
// roles (handshake.h), a worker or a client is not taken for a controller or a scheduler, whatever address it has.
//
// Threading: a function without state. Failure: a status.
#ifndef GANGWAY_TRANSPORT_SERVER_ROLE_H_
#define GANGWAY_TRANSPORT_SERVER_ROLE_H_

#include <string>

#include "absl/status/status.h"

#include "gangway/transport/transport.h"

namespace gangway::transport {

// PERMISSION_DENIED: the certificate of `peer` is a worker's or a client's; names it. `address`: for the message.
absl::Status CheckControls(const Peer& peer, const std::string& address);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SERVER_ROLE_H_
