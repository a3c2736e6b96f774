// The answering side of a link's first exchange: reads the Hello, checks versions and the cluster's
// token, and hands the link to the service that the role belongs to. What comes before a Hello, or
// instead of one within 10 s, closes the link.
//
// Threading: everything runs on the loop that is given. An Endpoint is owned by its link's events
// and dies after OnClosed.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/executor.h"
#include "gangway/transport/transport.h"

namespace gangway::transport {

// FAILED_PRECONDITION: the peer speaks another version of the protocol; names both.
absl::Status CheckVersions(const wire::Hello& hello);

// What a service does with a link after its Hello.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void OnFrame(wire::Frame frame) = 0;
  virtual void OnWritable() {}
  virtual void OnClosed(
      const absl::Status& why) = 0;  // last; not called when the service closed the link itself
};

// Takes over a link; sends the HelloReply itself, now or later. A status refuses the link: it is
// sent as the reply's failure, then the link is closed.
using Welcome = std::function<absl::StatusOr<std::unique_ptr<Endpoint>>(
    const std::shared_ptr<Link>& link, const wire::Hello& hello)>;

// Whether a Hello must carry the cluster's token (cluster_token.h).
struct Admission {
  bool token_needed = false;  // no: nobody but this process can connect
  std::string token;
};

// An Accept that greets every link on `loop`. `loop` outlives the listener.
Accept Greet(EventLoop* loop, Admission admission, Welcome welcome);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_HANDSHAKE_H_
