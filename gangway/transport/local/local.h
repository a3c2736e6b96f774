// A transport between processes of one host: a link is a connection of a unix socket. Addresses:
// "unix:/path" is a socket file, protected by the permissions of its folder; "unix-abstract:name"
// leaves no file, and both ends must belong to the same user. To listen at "unix-abstract:" lets
// the system choose the name. Threads: one per transport, for all its links and listeners.
// The peer is not trusted: bad input harms only its own link.
//
// Why not gRPC alone: here a message costs only a write in the sending thread and one wake of the
// reading thread (docs/internals/measurements.md).
#ifndef GANGWAY_TRANSPORT_LOCAL_LOCAL_H_
#define GANGWAY_TRANSPORT_LOCAL_LOCAL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "gangway/transport/transport.h"

namespace gangway::transport {

struct LocalOptions {
  size_t message_bytes_max = size_t{1} << 30;  // of one frame
};

// The transport and its listeners are independent of each other; destroying one closes its own
// links, within seconds. Neither may be destroyed on a thread of the transport (inside Accept).
std::unique_ptr<Transport> NewLocalTransport(LocalOptions options = {});

bool IsLocalAddress(const std::string& address);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_LOCAL_H_
