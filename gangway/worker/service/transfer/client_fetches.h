// ClientFetches: fetched shards on their way to their clients. The shards of a session take turns, piece by piece, and
// so do the sessions. A shard in shared memory is lent to a client that maps it, until the client says that it has read
// the shard, or that it cannot; then the bytes go on the stream.
//
// A shard goes out on the data stream that its session has and, without one, waits for it for a limited time (TM-1).
// The shared memory that fetched shards hold is bounded, for each session and for all of them (TM-2).
//
// Threading: belongs to the worker's event loop, on which `sent` is called; it may send other shards. Failure: the
// owner reports by Detach and Fail that a stream has closed. What its link has not taken fails then; where that is told
// by `sent`, the client's next fetch is the retry.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_FETCHES_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_FETCHES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/executor.h"
#include "gangway/base/ids.h"
#include "gangway/transport/bulk/lent_block.h"
#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/send_turns.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/client_stream.h"
#include "gangway/worker/service/transfer/fetched_shard.h"

namespace gangway::worker {

class ClientFetches {
 public:
  struct Options {
    EventLoop* loop = nullptr;                    // outlives this
    std::shared_ptr<StagingMemory> staging;       // what the shards are charged to
    std::shared_ptr<transport::SharedPool> pool;  // of shared memory
    size_t shared_bytes_max = 0;                  // of that pool
    std::chrono::milliseconds stream_wait_max = kStreamWaitMax;
  };
  explicit ClientFetches(Options options);

  // The session has this stream until Detach; `stream` has been opened. Sends what waits.
  void Attach(ClientStream& stream);
  // What was lent on the stream is retired.
  void Detach(SessionId session);

  // The memory for shards that are fetched for this session.
  FetchedShard::Source MemoryFor(SessionId session);

  // Called once: OK when the link has taken all bytes, else the reason.
  using Sent = std::function<void(const absl::Status&)>;
  void Send(SessionId session, FetchId fetch, uint32_t shard, std::shared_ptr<FetchedShard> bytes,
            Sent sent);
  void SendFailures(const FailFetch& fail);

  // The stream's link takes more.
  void Pump(SessionId session);
  // What the client of `stream` says of a shard that was lent to it.
  void OnBulk(ClientStream& stream, const wire::Bulk& bulk);

  // What the stream takes no more of, or none has taken.
  void Fail(SessionId session, const absl::Status& why);
  // Likewise, and forgets the session.
  void EndSession(SessionId session, const absl::Status& why);
  void Clear() { sessions_.clear(); }

  uint64_t sent_bytes() const { return sent_bytes_; }
  uint64_t sent_shared_bytes() const { return sent_shared_bytes_; }  // a part of them

 private:
  // A shard to be sent, or its failure.
  struct Outgoing {
    FetchId fetch;
    uint32_t shard = 0;
    transport::OutgoingShard data;
    std::shared_ptr<const void> owner = {};  // of its bytes
    Sent sent;
  };
  // The stream that the session has.
  struct Open {
    explicit Open(ClientStream& attached) : stream(&attached) {}
    ClientStream* const stream;
    transport::Lendings lent;  // shards that the client may be reading
  };
  struct Session {
    explicit Session(std::shared_ptr<FetchShare> share);
    std::optional<Open> open;
    transport::SendTurns<Outgoing> outgoing;
    bool pump_posted = false;
    uint64_t waits = 0;  // the number of the latest wait for a stream
    const std::shared_ptr<FetchShare> share;
  };

  Session& SessionOf(SessionId session);
  void Enqueue(SessionId session, Outgoing outgoing);
  void AwaitStream(SessionId session);
  void PumpLater(SessionId session);
  // The bytes that it sent; none: the link takes no more for now.
  std::optional<size_t> SendPiece(Open& open, Outgoing& outgoing);
  static void FailAll(Session& session, const absl::Status& why);
  static transport::ShardSize SizeOf(const Outgoing& outgoing);

  const Options options_;
  const std::shared_ptr<FetchShare> share_;  // of all sessions
  std::map<SessionId, Session> sessions_;
  uint64_t sent_bytes_ = 0;
  uint64_t sent_shared_bytes_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_FETCHES_H_
