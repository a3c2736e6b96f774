// Ordered, reliable streams of wire::Frame between two roles. One interface for every transport
// (in-process, gRPC, simulated), one conformance suite (transport/conformance).
//
// Threading: Send and Close may be called from any thread and never block. The events of one link
// are called one at a time, in order, on the executor given with them; on_closed is the last and
// comes exactly once. Destroying the last reference to a Link closes it; no event is called after
// Close returned on the executor's own thread. Failure: a link that is cut, or whose send queue
// passes its limit, closes with a status; nothing is retried here.
#ifndef GANGWAY_TRANSPORT_TRANSPORT_H_
#define GANGWAY_TRANSPORT_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

struct LinkEvents {
  Executor* executor = nullptr;                     // not owned; outlives the link
  std::function<void(wire::Frame frame)> on_frame;  // a frame came
  std::function<void()>
      on_writable;  // queued_bytes() fell below half of the limit again; may be empty
  std::function<void(const absl::Status&)> on_closed;  // last event
};

// Who is at the other end, as far as the transport can tell.
struct Peer {
  std::string address;  // for people
  bool authenticated = false;
};

class Link {
 public:
  virtual ~Link() = default;

  // Queues a frame and returns at once. RESOURCE_EXHAUSTED: the queue holds queue_bytes_max already
  // (the frame is not queued; a bulk sender waits for on_writable, a control link is closed by its
  // owner). UNAVAILABLE: closed.
  [[nodiscard]] virtual absl::Status Send(wire::Frame frame) = 0;

  // Bytes queued and not yet handed to the network.
  virtual size_t queued_bytes() const = 0;

  // Sends what is queued, within 1 s, then closes; the peer sees CANCELLED with `reason`'s message.
  virtual void Close(const absl::Status& reason) = 0;

  virtual const Peer& peer() const = 0;
};

struct LinkOptions {
  size_t queue_bytes_max = size_t{256} << 20;
};

// Called for every incoming link, on a thread of the transport; returns what to call for it. `link`
// is kept by the callee for as long as it wants the link open.
using Accept = std::function<LinkEvents(std::shared_ptr<Link> link)>;

class Listener {
 public:
  virtual ~Listener() = default;                   // stops listening, closes accepted links
  virtual const std::string& address() const = 0;  // with the real port
};

class Transport {
 public:
  virtual ~Transport() = default;

  // INVALID_ARGUMENT: malformed or, without credentials, not a loopback address (SE-1).
  // UNAVAILABLE: in use.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           Accept accept,
                                                           LinkOptions options = {}) = 0;

  // Connects within `limit`. UNAVAILABLE: nobody answers there, naming the address.
  virtual absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address,
                                                        LinkEvents events,
                                                        std::chrono::milliseconds limit,
                                                        LinkOptions options = {}) = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TRANSPORT_H_
