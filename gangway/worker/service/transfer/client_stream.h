// ClientStream: a client's data stream, from the Hello that the worker has accepted until the stream closes. It belongs
// to one session, knows which of the worker's shared memory the client maps, and keeps what its link has not taken yet.
//
// Sending never blocks. Answers keep their order: those that the link does not take wait until it is writable. The
// pieces of fetched shards do not wait here, because their sender chooses each time which one is next.
//
// Threading: belongs to the worker's event loop. Failure: what is sent on a closed link is dropped with the stream,
// whose owner learns of the end.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::worker {

// How long what is sent to a client waits for a data stream of the client's session.
inline constexpr std::chrono::milliseconds kStreamWaitMax{5000};

class ClientStream {
 public:
  static constexpr size_t kAnswersMax = 4096;  // that the link has not taken

  // `client`: what the client calls itself, for people.
  ClientStream(SessionId session, std::string client, std::shared_ptr<transport::BulkLink> link);

  SessionId session() const { return session_; }
  const std::string& client() const { return client_; }
  transport::SegmentExchange& segments() { return segments_; }

  // Answers the Hello. `listener`: outlives this; null: no memory is shared with the client.
  void Open(transport::DescriptorListener* listener);

  void Answer(wire::Frame frame);
  // Sends a piece. False: the link takes no more for now, or is closed.
  [[nodiscard]] bool Send(wire::Frame frame);
  void OnWritable();
  // RESOURCE_EXHAUSTED: too many answers wait, since the client does not read them.
  absl::Status CheckRead() const;

  // The worker has dropped these segments: the client is told of those that it maps.
  void Forget(std::span<const uint64_t> dropped);

 private:
  const SessionId session_;
  const std::string client_;
  const std::shared_ptr<transport::BulkLink> link_;
  transport::SegmentExchange segments_;
  std::deque<wire::Frame> answers_;  // wait until the link is writable
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_H_
