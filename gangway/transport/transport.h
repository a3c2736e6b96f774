// Ordered, reliable streams of wire::Frame between two roles. One interface for every transport
// (in-process, unix socket, gRPC, simulated), one conformance suite (transport/conformance).
//
// Threading: Send and Close may be called from any thread and never block. The events of one link
// run one at a time, in order, on the executor given with them; on_closed is the last event and
// runs once, unless the owner itself closed the link. Destroying the last reference to a Link
// closes it; no event runs after Close has returned on the executor's own thread. Failure: a broken
// link closes with a status, and a full send queue rejects frames; nothing is retried here.
#ifndef GANGWAY_TRANSPORT_TRANSPORT_H_
#define GANGWAY_TRANSPORT_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/transport/frame_part.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

struct LinkOptions {
  size_t queue_bytes_max = size_t{256} << 20;
  size_t writable_bytes_max = 0;  // on_writable runs once the queue has shrunk to this; 0: to half
  size_t writable_bytes() const {
    return writable_bytes_max > 0 ? writable_bytes_max : queue_bytes_max / 2;
  }
};

struct LinkEvents {
  Executor* executor = nullptr;                     // not owned; outlives the link
  std::function<void(wire::Frame frame)> on_frame;  // a frame arrived
  std::function<void()> on_writable;  // queued_bytes() fell to writable_bytes() again; may be empty
  std::function<void(const absl::Status&)> on_closed;  // last event
};

// The other end, as far as the transport knows it.
struct Peer {
  std::string address;  // for people
  bool authenticated = false;
  std::string certificate;  // its common name, such as "worker/a.example"; empty: none
};

class Link {
 public:
  virtual ~Link() = default;

  // Queues a frame and returns at once. RESOURCE_EXHAUSTED: the queue already holds queue_bytes_max
  // and the frame is not queued; a bulk sender waits for on_writable, the owner of a control link
  // closes it. INVALID_ARGUMENT: the frame is over the transport's limit. UNAVAILABLE: closed.
  [[nodiscard]] virtual absl::Status Send(wire::Frame frame) = 0;

  // Likewise, of one frame: `head`, which is this link's, with `parts` after it, which other links may carry, too.
  [[nodiscard]] virtual absl::Status SendParts(wire::Frame head, FrameParts parts) {
    for (const FramePartRef& part : parts) head.MergeFrom(part->frame());
    return Send(std::move(head));
  }

  // Bytes queued and not yet handed to the network.
  virtual size_t queued_bytes() const = 0;

  // Of this end's LinkOptions. Once more than this is queued, on_writable follows.
  virtual size_t writable_bytes() const = 0;

  // The largest frame that Send accepts; SIZE_MAX where frames are moved and never serialized.
  virtual size_t frame_bytes_max() const = 0;

  // Sends the queued frames within 1 s, then closes; the peer sees CANCELLED with `reason`'s
  // message.
  virtual void Close(const absl::Status& reason) = 0;

  virtual const Peer& peer() const = 0;

  // The owner of an accepted link calls it when the peer has shown that it belongs here, by a token: the link is no
  // stranger's from then on (base/strangers.h). Again: no effect.
  virtual void Admit() {}
};

// Called for every incoming link, on a thread of the transport; returns the link's events. The
// callee keeps `link` for as long as it wants the link open.
using Accept = std::function<LinkEvents(std::shared_ptr<Link> link)>;

class Listener {
 public:
  virtual ~Listener() = default;                   // stops listening, closes accepted links
  virtual const std::string& address() const = 0;  // with the bound port
};

class Transport {
 public:
  virtual ~Transport() = default;

  // INVALID_ARGUMENT: malformed or, without credentials, not a loopback address (SE-1).
  // UNAVAILABLE: in use.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           Accept accept,
                                                           LinkOptions options = {}) = 0;

  // Connects within `limit`. UNAVAILABLE, naming the address: no process answers there.
  virtual absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address,
                                                        LinkEvents events,
                                                        std::chrono::milliseconds limit,
                                                        LinkOptions options = {}) = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TRANSPORT_H_
