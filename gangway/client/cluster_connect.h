// Opens a session with a cluster at an address, with transports of the session's own: over its unix sockets on the same
// host, else over gRPC with mutual TLS, which is loaded for that (transport/library).
#ifndef GANGWAY_CLIENT_CLUSTER_CONNECT_H_
#define GANGWAY_CLIENT_CLUSTER_CONNECT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/client/include/gangway/client.h"

namespace gangway {

struct ClusterOptions {
  std::string address;  // of the controller: "unix:/path", "unix-abstract:name" or "host:port"
  std::string token;    // of the cluster
  std::string tls;      // a folder that `gangway certs` made; empty: no TLS, loopback only
  std::string name;     // for people: "train.py (pid 4711)"
  bool reports_ends = false;  // Client::reports_ends
};

// Blocks until the session is open, within the limit of ClientOptions (connect.h), whose errors it returns.
// INVALID_ARGUMENT: a malformed address, or, without a TLS folder, another host's. NOT_FOUND: a file of the TLS folder,
// or the library with gRPC. PERMISSION_DENIED: other users can read that file.
absl::StatusOr<std::unique_ptr<Client>> ConnectCluster(const ClusterOptions& options);

}  // namespace gangway

#endif  // GANGWAY_CLIENT_CLUSTER_CONNECT_H_
