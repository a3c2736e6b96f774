// The data streams of clients: accepts them, and takes what comes on them to the part that keeps it: uploads
// (client_uploads.h), fetched shards (client_fetches.h) and host callbacks (client_callbacks.h). A session has one
// stream; a new one replaces it, because its client has given the old one up. A stream belongs to the session whose
// token its Hello carries (stream_admission.h, OB-3). Streams of other workers arrive at the same address and are
// handed to their owners (peer_streams.h).
//
// A client on this host may request blocks of shared memory to write upload shards into, and reads fetched shards in
// shared memory until it acknowledges them (docs/internals/transfers.md); the streams then carry only control messages.
//
// Threading: every call but Accept belongs to the event loop, on which the events are called. Failure: what breaks the
// protocol closes its stream. The end of a stream fails what was to be sent on it: fetched shards and host callbacks.
// Uploads wait through it.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/transfer/client_callbacks.h"
#include "gangway/worker/service/transfer/client_fetches.h"
#include "gangway/worker/service/transfer/client_stream.h"
#include "gangway/worker/service/transfer/client_uploads.h"
#include "gangway/worker/service/transfer/fetched_shard.h"
#include "gangway/worker/service/transfer/peer_streams.h"
#include "gangway/worker/service/transfer/stream_admission.h"
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
  DataStreams(const Options& options, const Events& events);

  // For Transport::Listen. Any thread.
  transport::LinkEvents Accept(std::shared_ptr<transport::Link> link);

  // The key that checks data tokens. Frames that arrive before it wait for it, since a client may
  // learn of this worker before the worker receives its own welcome.
  void SetKey(std::string key);
  // These have ended before. Before SetKey.
  void SetEnded(const wire::EndedSessions::Runs& sessions) { admission_.SetEnded(sessions); }
  // From now on, streams of a session are taken once it is admitted, and wait for that as for a Hello. Before SetKey.
  void Isolate() { admission_.Isolate(); }
  void Admit(SessionId session);

  FetchedShard::Source MemoryFor(SessionId session) { return fetches_.MemoryFor(session); }
  using Sent = ClientFetches::Sent;
  void SendShard(SessionId session, FetchId fetch, uint32_t shard,
                 std::shared_ptr<FetchedShard> bytes, Sent sent);
  void FailShards(const FailFetch& fail);

  // Sends it once the session has a stream; on_callbacks_lost if it has none for a while.
  void SendCallback(SessionId session, wire::HostCallback callback);
  // For people: what the session's client calls itself; empty without a stream.
  std::string ClientOf(SessionId session) const;

  UploadStaging::Shards TakeUpload(SessionId session, UploadId upload);
  void RefuseUpload(SessionId session, UploadId upload);
  std::vector<UploadsMoved> TakeMoved() { return uploads_.TakeMoved(); }

  // Its owner has closed this stream of another worker.
  void ForgetPeer(uint64_t id) { streams_.erase(id); }

  // Closes the session's stream and forgets it.
  void EndSession(SessionId session);
  void CloseAll();

  size_t upload_count() const { return uploads_.count(); }
  uint64_t received_bytes() const { return uploads_.received_bytes(); }
  uint64_t sent_bytes() const { return fetches_.sent_bytes(); }
  // Parts of received_bytes and sent_bytes.
  uint64_t received_shared_bytes() const { return uploads_.received_shared_bytes(); }
  uint64_t sent_shared_bytes() const { return fetches_.sent_shared_bytes(); }

 private:
  using Frames = std::vector<wire::Frame>;
  struct Stream {
    std::shared_ptr<transport::Link> accepted;
    std::shared_ptr<transport::BulkLink>
        link;                              // of `accepted`; unused once the stream has an owner
    PeerStreams* owner = nullptr;          // of another worker's stream
    std::unique_ptr<ClientStream> client;  // of a client's stream, once its Hello is accepted
    // Arrived before the key; the Hello alone if that came before its session's admission.
    Frames early;
    SessionId awaits;  // the session that is not admitted yet; 0: none
  };

  void OnFrame(uint64_t id, wire::Frame frame);
  // Frames that came too early.
  void OnFrames(std::vector<std::pair<uint64_t, Frames>> early);
  void OnHello(uint64_t id, Stream& stream, wire::Frame frame);
  void OnPeerHello(uint64_t id, Stream& stream, const wire::Hello& hello);
  void OpenStream(uint64_t id, Stream& stream, SessionId session, const std::string& client);
  absl::Status OnClientFrame(ClientStream& stream, wire::Frame frame);
  absl::Status OnBulk(ClientStream& stream, const wire::Bulk& bulk);
  void OnWritable(uint64_t id);
  void OnClosed(uint64_t id);
  void Refuse(uint64_t id, const absl::Status& why);
  void DropIdleMemory();

  const Options options_;
  EventLoop* const loop_;
  transport::LendingPool pool_;
  std::unique_ptr<transport::DescriptorListener> listener_;  // null: no shared memory
  StreamAdmission admission_;
  std::atomic<uint64_t> next_id_ = 1;
  std::map<uint64_t, Stream> streams_;
  std::map<SessionId, uint64_t> open_;  // the stream of each session that has one
  ClientUploads uploads_;
  ClientFetches fetches_;
  ClientCallbacks callbacks_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_DATA_STREAMS_H_
