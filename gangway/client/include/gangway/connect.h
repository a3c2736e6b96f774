// Opens a session with a cluster at an address: over its unix sockets on the same host, else over gRPC with mutual TLS,
// whose library is loaded for that.
#ifndef GANGWAY_CONNECT_H_
#define GANGWAY_CONNECT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client.h"
#include "status.h"

namespace gangway {

struct ClusterOptions {
  std::string address;  // of the controller: "unix:/path", "unix-abstract:name" or "host:port"
  std::string token;    // of the cluster
  std::string tls;      // a folder that `gangway certs` made; empty: no TLS, loopback only
  std::string name;     // for people: "train (pid 4711)"
  bool reports_ends = false;  // Client::reports_ends
};

// Blocks until the session is open, at most 30 s. The client must not be destroyed from one of its callbacks.
// UNAVAILABLE: no controller answers, or it closed the connection. DEADLINE_EXCEEDED: no welcome within the limit; it
// comes when the declared workers are up. INVALID_ARGUMENT: a malformed address, or, without a TLS folder, another
// host's. NOT_FOUND: a file of the TLS folder, or the library with gRPC. PERMISSION_DENIED: other users can read that
// file. UNAUTHENTICATED: the token is not the cluster's.
Result<std::unique_ptr<Client>> Connect(const ClusterOptions& options);

// What this process has exchanged with clusters since it started: messages of the native protocol, without the
// heartbeats that it sends, and their bytes. Bytes that pass through shared memory are not among them.
struct Traffic {
  uint64_t frames_sent = 0;
  uint64_t bytes_sent = 0;
  uint64_t frames_received = 0;
  uint64_t bytes_received = 0;
};
Traffic TrafficOfProcess();

}  // namespace gangway

#endif  // GANGWAY_CONNECT_H_
