// A transport between processes of one host: a link is a connection of a unix socket. Addresses:
// "unix:/path", a socket file, which only those can open who may enter its folder, and
// "unix-abstract:name", which leaves no file and where both ends must be of one user; to listen at
// "unix-abstract:" is to listen at a name that the system chooses. Threads: one per transport, for
// all its links, and one per listener. The peer is not trusted: whatever it sends, only its own
// link suffers.
//
// Why beside gRPC: a message costs no more than a write in the thread that sends it and one wake of
// the thread that reads it (docs/internals/measurements.md).
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

// The transport and its listeners are independent of each other; the end of each closes its own
// links, within seconds. Neither may be destroyed on a thread of the transport (inside Accept).
std::unique_ptr<Transport> NewLocalTransport(LocalOptions options = {});

bool IsLocalAddress(const std::string& address);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_LOCAL_H_
