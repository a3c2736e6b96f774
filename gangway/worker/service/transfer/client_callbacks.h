// ClientCallbacks: the host callbacks that programs send to the clients of this worker, and the replies to them. A
// callback goes out on the data stream of its session and, without one, waits for it for a limited time (TM-1).
//
// Threading: belongs to the worker's event loop; the events are called on it, last in a call. Failure: a stream that
// closes takes with it all that was sent to its client; the owner reports that by Lose. A reply to nothing, and one
// whose pieces do not fit together, are errors, and the owner refuses the stream.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_CALLBACKS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_CALLBACKS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/transport/pieces.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/transfer/client_stream.h"

namespace gangway::worker {

class ClientCallbacks {
 public:
  struct Events {
    // May be empty if no callback is sent.
    std::function<void(SessionId, wire::HostCallbackReply)> on_reply;
    // No reply will come to what was sent to this client until now. May be empty.
    std::function<void(SessionId, const absl::Status& why)> on_lost;
  };

  // `loop` outlives this.
  ClientCallbacks(EventLoop* loop, Events events,
                  std::chrono::milliseconds stream_wait_max = kStreamWaitMax);

  // The session has this stream until Detach; `stream` has been opened. Sends what waits.
  void Attach(ClientStream& stream);
  void Detach(SessionId session);

  void Send(SessionId session, wire::HostCallback callback);
  // A reply from the session's stream, or a piece of one. INVALID_ARGUMENT: no callback was sent on this stream. The
  // errors of PieceJoiner. After an error the stream must be closed.
  absl::Status OnReply(SessionId session, wire::Frame frame);

  // The replies will not come: drops what waits.
  void Lose(SessionId session, const absl::Status& why);
  // Likewise, and forgets the session.
  void EndSession(SessionId session, const absl::Status& why);
  void Clear() { sessions_.clear(); }

 private:
  // The stream that the session has.
  struct Open {
    explicit Open(ClientStream& attached) : stream(&attached) {}
    ClientStream* const stream;
    bool called = false;  // a callback was sent on it: replies may come
    transport::PieceJoiner joiner{transport::kLargeFieldsBytesMax, transport::kHostCallFieldsMax};
  };
  struct Session {
    std::optional<Open> open;
    std::deque<wire::Frame> waiting;  // for a stream
    uint64_t waits = 0;               // the number of the latest wait
  };

  void SendWaiting(Session& session);
  void AwaitStream(SessionId session);

  EventLoop* const loop_;
  const Events events_;
  const std::chrono::milliseconds stream_wait_max_;
  std::map<SessionId, Session> sessions_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_CALLBACKS_H_
