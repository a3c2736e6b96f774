// An owner of streams that other workers have opened to this one. DataStreams accepts them at the worker's data
// address, checks their Hello, and hands them over with all that comes on them.
//
// Threading: called on the worker's event loop, for each stream in order.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_PEER_STREAMS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_PEER_STREAMS_H_

#include <cstdint>
#include <memory>

#include "gangway/base/ids.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::worker {

// The session id in the data tokens of streams between workers (data_token.h); no client has it.
inline constexpr SessionId kPeerSession;

class PeerStreams {
 public:
  virtual ~PeerStreams() = default;
  // The owner answers the Hello. If it closes the stream, it has DataStreams forget it.
  virtual void AcceptPeer(uint64_t id, std::shared_ptr<transport::Link> link,
                          const wire::Hello& hello) = 0;
  virtual void OnPeerFrame(uint64_t id, wire::Frame frame) = 0;
  virtual void OnPeerWritable(uint64_t id) = 0;
  virtual void OnPeerClosed(uint64_t id) = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_PEER_STREAMS_H_
