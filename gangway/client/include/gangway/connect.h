// Opens a session with a cluster at an address: over its unix sockets on the same host, else over gRPC with mutual TLS,
// whose library is loaded for that. Front doors use the session as it is (client.h); programs use cluster.h.
#ifndef GANGWAY_CONNECT_H_
#define GANGWAY_CONNECT_H_

#include <cstdint>
#include <memory>

#include "client.h"
#include "cluster_options.h"
#include "status.h"

namespace gangway {

// Blocks until the session is open, at most 30 s. The client must not be destroyed from one of its callbacks.
// UNAVAILABLE: no controller answers, or it closed the connection. DEADLINE_EXCEEDED: no welcome within the limit; it
// comes when the declared workers are up. INVALID_ARGUMENT: a malformed address, or, without a TLS folder, another
// host's. NOT_FOUND: a file of the TLS folder, or the library with gRPC. PERMISSION_DENIED: other users can read that
// file. UNAUTHENTICATED: the token is not the cluster's.
Result<std::unique_ptr<Client>> ConnectClient(const ClusterOptions& options);

// What this process has exchanged with clusters since it started: messages of the native protocol, without the
// heartbeats that it sends, and their bytes. Bytes that pass through shared memory are not among them.
struct Traffic {
  uint64_t frames_sent = 0;
  uint64_t bytes_sent = 0;
  uint64_t frames_received = 0;
  uint64_t bytes_received = 0;
};
// Of this process, so far. On any thread.
Traffic TrafficOfProcess();

}  // namespace gangway

#endif  // GANGWAY_CONNECT_H_
