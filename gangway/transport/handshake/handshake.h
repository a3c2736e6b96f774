// The answering side of a link's first exchange: reads the Hello, checks versions, the role's token
// and the peer's certificate, and hands the link to the service. It answers a ROLE_PROBE itself. Any
// other first frame closes the link; so does the lack of a Hello within 10 s. Of the links that have
// sent none, the oldest makes room at a limit.
//
// Threading: everything runs on the given loop. The link's events own the Endpoint and destroy it
// after OnClosed.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/base/memory_budget.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// FAILED_PRECONDITION: the peer speaks another version of the protocol; names both.
absl::Status CheckVersions(const wire::Hello& hello);

// What a service does with a link after its Hello.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // Whole: pieces are joined before it. Where they did not fit (Admission::memory), they were dropped: the frame's
  // fields are empty, and its attachments say how large they were.
  virtual void OnFrame(wire::Frame frame) = 0;
  virtual void OnWritable() {}
  virtual void OnClosed(
      const absl::Status& why) = 0;  // last; not called when the service closed the link itself
};

// Takes over a link; sends the HelloReply itself, now or later. An error rejects the link: it is
// sent as the reply's failure, then the link is closed.
using Welcome = std::function<absl::StatusOr<std::unique_ptr<Endpoint>>(
    const std::shared_ptr<Link>& link, const wire::Hello& hello)>;

// Whether a Hello must carry its role's token (cluster_token.h).
struct Admission {
  bool token_needed = false;  // false: only this process can connect
  Verifiers verifiers;
  // What clients' programs count against while they come in pieces; null: no limit but each link's.
  std::shared_ptr<MemoryBudget> memory;
};

// PERMISSION_DENIED: the peer has a certificate of another role; names both. A certificate is for
// one role if its common name begins with that role's name and a slash, else for all. A worker's is
// also for its streams to other workers, a client's for its data streams, a controller's for all but
// workers and schedulers.
absl::Status CheckCertificate(const Peer& peer, const wire::Hello& hello);

// An Accept that greets every link on `loop`. `loop` outlives the listener.
Accept Greet(EventLoop* loop, Admission admission, Welcome welcome);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_
