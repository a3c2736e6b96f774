// Opens a session with a cluster: the way to get a Client (include/gangway/client.h).
#ifndef GANGWAY_CLIENT_CONNECT_H_
#define GANGWAY_CLIENT_CONNECT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/client/client.h"
#include "gangway/transport/transport.h"

namespace gangway {

struct ClientOptions {
  std::string controller_address;
  std::string name;                         // for people: "train.py (pid 4711)"
  std::string token;                        // of the cluster; not needed in process
  transport::Transport* control = nullptr;  // both outlive the client
  transport::Transport* data = nullptr;
  std::shared_ptr<transport::Transport> owned_transport;  // lives as long as the client
  // Limit for the connection and the controller's welcome, which arrives when the declared workers
  // are up.
  std::chrono::milliseconds connect_limit{30000};
  uint64_t pending_max = 16384;  // TM-2
  bool reports_ends = false;     // Client::reports_ends
  bool captures_bursts = false;  // ClusterOptions
  // The session is lost if the controller's process gives no sign of life for so long while answers are awaited. The
  // 10 s are what a controller may stand still at no loss. Zero: never, for a controller of this process.
  std::chrono::milliseconds controller_silence_max{10'000};
  size_t used_from_start =
      16;  // workers whose data streams open with the session; the others' at their first use
};

// Blocks until the session is open. UNAVAILABLE: no controller answers, or it closed the
// connection. DEADLINE_EXCEEDED: no welcome within the limit. Other errors: why the session was
// rejected. The client must not be destroyed from one of its callbacks.
absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);

}  // namespace gangway

#endif  // GANGWAY_CLIENT_CONNECT_H_
