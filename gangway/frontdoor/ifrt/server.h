// The JAX front door: serves the IFRT proxy protocol, whose client is inside every stock jaxlib, on
// top of the client library. One gRPC stream = one session = one Client.
//
// Threading: thread-safe. The server owns its threads; Shutdown (and the destructor) ends every
// session. This protocol has no TLS, so only loopback addresses are served (SE-1). A client that is
// not admitted by its token costs neither a thread nor a session (doorkeeper.h).
#ifndef GANGWAY_FRONTDOOR_IFRT_SERVER_H_
#define GANGWAY_FRONTDOOR_IFRT_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gangway/base/memory_budget.h"
#include "gangway/client/client.h"
#include "gangway/frontdoor/ifrt/doorkeeper.h"

namespace gangway::ifrt {

// A client's request for a session.
struct SessionRequest {
  std::string name;   // for people
  std::string token;  // "gangway_token" of the client's initialization data; empty: none
};

// Opens a Client for a session. May block, but must fail within seconds when the server shuts down.
// The JAX client gets its error.
using ClientFactory =
    std::function<absl::StatusOr<std::unique_ptr<Client>>(const SessionRequest& request)>;

// Decides by the client's token whether it may open a session. Must not block.
using Admit = std::function<absl::Status(const SessionRequest& request)>;

struct IfrtServerOptions {
  Admit admit;  // null: every client
  DoorLimits limits;
  // Host buffers held, of all sessions, count against it; one session may hold three quarters. Null: a quarter of the
  // machine's memory.
  std::shared_ptr<MemoryBudget> memory;
  std::chrono::milliseconds host_buffer_limit{120000};  // for bytes that a request announced (TM-1)
  int message_bytes_max = 1 << 30;      // one request; programs with large constants are large
  size_t response_queue_max = 1 << 17;  // responses that the client has not read
  // A client that answers no HTTP/2 ping for this long is gone, with its session: its process is
  // stopped. Rounded up to 2 s.
  std::chrono::milliseconds client_silence_max{60000};
  // Of a unix socket where it listens, too; empty: none. If it cannot, it says so in the log.
  std::string socket_path;
};

class IfrtServer {
 public:
  // `address`: "127.0.0.1:38677", "localhost:0", "unix:/path". INVALID_ARGUMENT: not loopback.
  // UNAVAILABLE: in use. The socket file of `options` is replaced.
  static absl::StatusOr<std::unique_ptr<IfrtServer>> Start(const std::string& address,
                                                           ClientFactory factory,
                                                           const IfrtServerOptions& options = {});
  ~IfrtServer();

  int port() const;  // 0 for a unix socket

  // Cancels the sessions, waits until they have ended, and stops. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit IfrtServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_SERVER_H_
