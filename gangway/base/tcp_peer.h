// What the system says of an accepted connection, and how to end it while a library owns it. Any thread, no state.
#ifndef GANGWAY_BASE_TCP_PEER_H_
#define GANGWAY_BASE_TCP_PEER_H_

#include <cstdint>
#include <string>

#include "gangway/base/file_descriptor.h"

namespace gangway {

// The address of a TCP connection's peer as grpc::ServerContext::peer() writes it; empty for other connections.
std::string GrpcPeerName(int fd);

// The peer sends no more, or the connection is broken.
bool HasPeerClosed(int fd);

// All bytes that the peer has sent; 0 if the system does not say.
uint64_t BytesReceived(int fd);

// Ends a connection of which `socket` is a duplicate, and closes the duplicate. The library that owns the connection
// closes it when it sees the end of its input. That resets it: a peer whose bytes filled the window would otherwise
// hear nothing for as long as the system keeps the other half, a minute or more.
void ResetConnection(FileDescriptor& socket);

}  // namespace gangway

#endif  // GANGWAY_BASE_TCP_PEER_H_
