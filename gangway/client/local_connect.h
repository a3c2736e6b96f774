// Opens a session with a cluster of this host over its unix sockets, with transports of the session's own.
#ifndef GANGWAY_CLIENT_LOCAL_CONNECT_H_
#define GANGWAY_CLIENT_LOCAL_CONNECT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/client/include/gangway/client.h"

namespace gangway {

struct LocalClientOptions {
  std::string address;        // of the controller: "unix:/path" or "unix-abstract:name"
  std::string token;          // of the cluster
  std::string name;           // for people: "train.py (pid 4711)"
  bool reports_ends = false;  // Client::reports_ends
};

// Blocks until the session is open, within the limit of ClientOptions (connect.h), whose errors it returns.
// INVALID_ARGUMENT: the address names no unix socket.
absl::StatusOr<std::unique_ptr<Client>> ConnectLocal(const LocalClientOptions& options);

}  // namespace gangway

#endif  // GANGWAY_CLIENT_LOCAL_CONNECT_H_
