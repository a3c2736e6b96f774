// The data streams of clients: uploads arrive, fetched shards are sent. A session has one stream; a
// new one replaces it, because its client has given the old one up. A stream belongs to the session
// whose token its Hello carries (OB-3). Streams of other workers arrive at the same address and are
// handed to their owners (peer_streams.h). Every call but Accept belongs to the event loop.
//
// A client on this host may request blocks of shared memory to write upload shards into, and reads
// fetched shards in shared memory until it acknowledges them (docs/internals/transfers.md); the
// streams then carry only control messages.
//
// Sending never blocks: frames that the link does not take wait until it is writable. The shards of a session take
// turns, piece by piece, and so do the sessions. A
// fetched shard whose stream closes before the link has taken all of it fails; one that has no stream
// waits for one, for a limited time. Uploads wait through all of this: their client sends the rest on
// another stream or gives them up, which the controller says.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/transport/bulk/lent_block.h"
#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/bulk/send_turns.h"
#include "gangway/transport/pieces.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/transfer/fetched_shard.h"
#include "gangway/worker/service/transfer/peer_streams.h"
#include "gangway/worker/service/transfer/upload_staging.h"

namespace gangway::worker {

class DataStreams {
 public:
  // Notifications of the owner, on the loop.
  struct Events {
    std::function<void(UploadShardStaged)> on_staged;
    std::function<void(UploadRefused)> on_refused;  // its bytes are gone, and no more are taken
    // Of host callbacks; may be empty if none is sent.
    std::function<void(SessionId, wire::HostCallbackReply)> on_reply;
    // No reply will come to what was sent to this client until now.
    std::function<void(SessionId, const absl::Status& why)> on_callbacks_lost;
  };

  struct Options {
    EventLoop* loop = nullptr;  // outlives the links
    Incarnation incarnation;
    std::shared_ptr<StagingMemory> staging;  // what uploads and fetched shards are charged to
    size_t shared_bytes_max = 0;             // of memory shared with clients; 0: none
    std::function<std::shared_ptr<void>(std::span<std::byte>)> pin;  // as in SharedPool::Options
    // Of other workers' streams, by the role in their Hello. They outlive this.
    std::map<wire::Role, PeerStreams*> peers;
  };
  DataStreams(const Options& options, Events events);

  // For Transport::Listen. Any thread.
  transport::LinkEvents Accept(std::shared_ptr<transport::Link> link);

  // The key that checks data tokens. Frames that arrive before it wait for it, since a client may
  // learn of this worker before the worker receives its own welcome.
  void SetKey(std::string key);
  // These have ended before. Before SetKey.
  void SetEnded(const wire::EndedSessions::Runs& sessions) { ended_.Insert(sessions); }
  // From now on, streams of a session are taken once it is admitted, and wait for that as for a Hello. Before SetKey.
  void Isolate() { isolated_ = true; }
  void Admit(SessionId session);

  // The memory for shards that are fetched for this session.
  FetchedShard::Source MemoryFor(SessionId session);
  // Calls `sent` once: OK when the link has taken all bytes, else the reason.
  using Sent = std::function<void(const absl::Status&)>;
  void SendShard(SessionId session, FetchId fetch, uint32_t shard,
                 std::shared_ptr<FetchedShard> bytes, Sent sent);
  void FailShards(const FailFetch& fail);

  // Sends it once the session has a stream; on_callbacks_lost if it has none for a while.
  void SendCallback(SessionId session, wire::HostCallback callback);
  // For people: what the session's client calls itself; empty without a stream.
  std::string ClientOf(SessionId session) const;

  UploadStaging::Shards TakeUpload(SessionId session, UploadId upload);
  void RefuseUpload(SessionId session, UploadId upload);
  std::vector<UploadsMoved> TakeMoved();

  // Its owner has closed this stream of another worker.
  void ForgetPeer(uint64_t id) { streams_.erase(id); }

  // Closes the session's streams and forgets it.
  void EndSession(SessionId session);
  void CloseAll();

  size_t session_count() const { return sessions_.size(); }
  size_t upload_count() const;  // with staged bytes
  uint64_t received_bytes() const { return received_bytes_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  // Parts of received_bytes and sent_bytes.
  uint64_t received_shared_bytes() const { return received_shared_bytes_; }
  uint64_t sent_shared_bytes() const { return sent_shared_bytes_; }

 private:
  struct Stream {
    uint64_t id = 0;
    std::shared_ptr<transport::Link> accepted;
    std::shared_ptr<transport::BulkLink>
        link;                      // of `accepted`; unused once the stream has an owner
    SessionId session;             // 0: no Hello yet
    PeerStreams* owner = nullptr;  // of another worker's stream
    std::vector<wire::Frame>
        early;         // arrived before the key; the Hello alone if that came before its admission
    SessionId awaits;  // the session that is not admitted yet; 0: none
    transport::SegmentExchange segments;
    transport::Lendings lent;         // fetched shards that the client may be reading
    std::deque<wire::Frame> answers;  // wait until the link is writable
    std::string client;               // its name, by its Hello
    // Of replies to host callbacks.
    transport::PieceJoiner joiner{transport::kLargeFieldsBytesMax, transport::kHostCallFieldsMax};
    bool called = false;  // a host callback was sent: replies may come
  };

  // A shard to be sent, or its failure.
  struct Outgoing {
    FetchId fetch;
    uint32_t shard = 0;
    transport::OutgoingShard data;
    std::shared_ptr<const void> owner = {};  // of its bytes
    Sent sent;
  };

  struct Session {
    Session(std::shared_ptr<StagingMemory> memory, SessionId id,
            std::shared_ptr<FetchShare> fetched);
    uint64_t stream = 0;  // 0: none
    UploadStaging staging;
    transport::SendTurns<Outgoing> outgoing;
    bool pump_posted = false;
    uint64_t waits = 0;  // the latest wait for a stream; counts them
    const std::shared_ptr<FetchShare> share;
    std::deque<wire::Frame> callbacks;  // wait for a stream
    uint64_t callback_waits = 0;        // the latest of these waits; counts them
  };

  void OnFrame(uint64_t id, wire::Frame frame);
  void OnHello(uint64_t id, Stream& stream, wire::Frame frame);
  void OnPeerHello(uint64_t id, Stream& stream, const wire::Hello& hello);
  void OnWritable(uint64_t id);
  void OnBulk(uint64_t id, Stream& stream, const wire::Bulk& bulk);
  void OnBytes(uint64_t id, Stream& stream, const wire::ShardName& name,
               const wire::ShardBytes& bytes);
  void OnDropped(const Stream& stream, UploadId upload);
  void OnPlaced(uint64_t id, Stream& stream, const wire::ShardName& name);
  void OnPlaceRequest(Stream& stream, const wire::ShardName& name, size_t size);
  enum class Done : uint8_t { kReceived, kUnread };
  void OnDone(Stream& stream, const wire::ShardName& name, Done done);
  void OnReply(uint64_t id, Stream& stream, wire::Frame frame);
  void SendCallbacks(SessionId session);
  void LoseCallbacks(SessionId session, const absl::Status& why);
  void Answer(Stream& stream, wire::Frame frame);
  void DropIdleMemory();
  void OnStaged(const Stream& stream, const wire::ShardName& name);
  void OnClosed(uint64_t id);
  void Refuse(uint64_t id, const absl::Status& why);
  Session& SessionOf(SessionId session);
  void Enqueue(SessionId session, Outgoing outgoing);
  void Pump(SessionId session);
  // The bytes that it sent; none: the link takes no more for now.
  std::optional<size_t> SendPiece(Stream& stream, SessionId session, Outgoing& outgoing);
  void AwaitStream(SessionId session);
  static transport::ShardSize SizeOf(const Outgoing& outgoing);
  // What the stream takes no more of, or none has taken.
  static void FailOutgoing(Session& session, const absl::Status& why);

  const Options options_;
  EventLoop* const loop_;
  const Events events_;
  transport::LendingPool pool_;
  const std::shared_ptr<FetchShare> fetched_;                // of all sessions
  std::unique_ptr<transport::DescriptorListener> listener_;  // null: no shared memory
  std::string key_;
  bool isolated_ = false;
  std::set<SessionId> admitted_;  // if isolated
  std::atomic<uint64_t> next_id_ = 1;
  std::map<uint64_t, Stream> streams_;
  std::map<SessionId, Session> sessions_;
  uint64_t received_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  uint64_t received_shared_bytes_ = 0;
  uint64_t sent_shared_bytes_ = 0;
  wire::EndedSessions ended_;  // late work for them is dropped, and their tokens open nothing
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_
