// The sending half of transfers over streams: the offered shards, the requests for them, and the
// pieces being sent. Belongs to one event loop.
//
// The shards of a transfer are requested, read and sent together. If the request names blocks of
// shared memory, the shards that have one are written into it and the stream announces that; the
// others follow on the stream, packed. If one of the blocks cannot be used, all go on the stream.
//
// A request may arrive before its offer and before the shard: it waits. One that arrives after its offer was cancelled
// waits until its receiver drops it. On each stream the sessions take turns, piece by piece, and so do a few shards of
// each session; a shard is read from the device when its turn begins, so that the bytes in host memory are bounded
// (TM-2), for each session and, in the staging memory, for all. A shard has ended when its receiver acknowledges all of
// it. A shard that makes no progress for `wait_max` while it is sent fails, and so does a stream whose receiver waits
// for shards and is silent for `silence_max` (TM-1). A missing request is no fault: the receiver's node may wait for
// memory. If that node fails, a Cancel ends the offer.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_SENDER_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_SENDER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/aligned_bytes.h"
#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/bulk/send_turns.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/transport/shm/descriptor_socket.h"
#include "gangway/transport/transport.h"
#include "gangway/worker/service/device/in_flight.h"
#include "gangway/worker/service/memory/staging_memory.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class ShardSender {
 public:
  struct Options {
    EventLoop* loop = nullptr;
    Incarnation incarnation;
    std::chrono::milliseconds wait_max{60'000};
    std::chrono::milliseconds silence_max{10'000};
    size_t read_bytes_max = size_t{256}
                            << 20;  // of a session in host memory; one shard may exceed it alone
    std::shared_ptr<StagingMemory> staging;       // what shards in host memory are charged to
    std::shared_ptr<InFlight> callbacks;          // counts those that the device runtime owes
    std::function<void(uint64_t id)> on_refused;  // this side closed a stream
    bool shared_memory = false;
  };
  explicit ShardSender(Options options);

  // A worker's stream after its Hello, then its frames and events under `id`.
  void Accept(uint64_t id, std::shared_ptr<transport::Link> link, std::string peer);
  void OnFrame(uint64_t id, const wire::Frame& frame);
  void OnWritable(uint64_t id);
  void OnClosed(uint64_t id);

  void Offer(TransferPlane::Offering offering);
  void Settle(TransferKey key, absl::StatusOr<TransferPlane::Buffers> shards);
  // False: the shard is not offered.
  bool Cancel(TransferKey key, const absl::Status& why);
  void Close(const absl::Status& why);

  uint64_t sent_bytes() const { return sent_bytes_; }                // any thread
  uint64_t sent_shared_bytes() const { return sent_shared_bytes_; }  // a part of them

 private:
  enum class State { kUnsettled, kSettled, kAwaitingMemory, kReading, kSending, kSent };

  // Shards that are read from their device together.
  struct HostShards {
    StagingMemory::Charge charge;  // returned after the bytes are
    AlignedBytes bytes;            // of those that go on the stream
    Mutex mutex;
    size_t reads_left GANGWAY_GUARDED_BY(mutex) = 0;
    absl::Status first_error GANGWAY_GUARDED_BY(mutex);
  };
  // In the receiver's memory, for one shard.
  struct Target {
    std::shared_ptr<std::byte>
        memory;  // null: it cannot be used, or, of size 0, the shard is to be sent
    size_t size = 0;
  };
  struct Offered {
    TransferPlane::Offering offering;
    State state = State::kUnsettled;
    uint64_t stream = 0;             // that requested it; 0: none has
    TransferPlane::Buffers buffers;  // by array, as the next two
    std::vector<size_t> sizes;
    std::vector<Target> targets;  // empty: all are sent on the stream
    absl::Status failure;
    size_t stream_bytes = 0;  // of what is sent on the stream; once requested and settled
    bool started = false;     // counts in its stream's `started`
    size_t read_bytes = 0;    // its part of read_bytes_
    std::shared_ptr<HostShards> bytes;
    std::deque<transport::OutgoingShard> outgoing;  // what has a target, then what is sent
    transport::Silence progress;                    // of its bytes, and of their acknowledgement
  };
  struct Stream {
    std::shared_ptr<transport::BulkLink>
        link;  // awaits its receiver, which asks while it awaits shards
    std::string peer;
    size_t piece_bytes_max = 0;
    transport::SendTurns<TransferKey> waiting;  // requested and settled
    transport::SendTurns<TransferKey> active;   // read from the device
    std::map<SessionId, size_t> started;        // shards that have left `waiting` and are not sent
    size_t parked = 0;                          // requests, and blocks that they name
    transport::SegmentExchange segments;
  };
  // A request that arrived before its offer: its shard, and its stream.
  using ParkedKey = std::pair<TransferKey, uint64_t>;

  void OnBulk(uint64_t id, Stream& stream, const wire::Bulk& bulk);
  void OnRequest(uint64_t id, Stream& stream, TransferKey key, const wire::ShardRequest& request);
  void OnReceived(uint64_t id, TransferKey key);
  void OnDropped(uint64_t id, Stream& stream, TransferKey key);
  void Assign(TransferKey key, uint64_t id, const wire::ShardRequest& request);
  void Advance(TransferKey key);
  static void ChooseWays(Offered& offered);
  void Pump(uint64_t id);
  void PumpAll();
  bool MayStart(const Stream& stream, SessionId session, TransferKey key) const;
  void Start(uint64_t id, TransferKey key);
  void OnMemory(uint64_t id, TransferKey key, absl::StatusOr<StagingMemory::Charge> charge);
  void GiveBack(Offered& offered);
  void Read(uint64_t id, TransferKey key, StagingMemory::Charge charge);
  void ReadAll(uint64_t id, TransferKey key, const Offered& offered,
               const std::shared_ptr<HostShards>& bytes);
  void FailRead(TransferKey key, absl::Status why);
  void OnRead(uint64_t id, TransferKey key, std::shared_ptr<HostShards> bytes,
              const absl::Status& status);
  static void Queue(Offered& offered);
  bool SendPiece(Stream& stream, Offered& offered);
  void End(TransferKey key, const absl::Status& status);
  void Refuse(uint64_t id, const absl::Status& why);
  void WatchDeadlines();
  std::optional<absl::Status> Late(Offered& offered, Clock::time_point now);

  const Options options_;
  std::map<TransferKey, Offered> offered_;
  std::multimap<ParkedKey, wire::ShardRequest> parked_;
  std::unique_ptr<transport::DescriptorListener> listener_;  // null: no shared memory
  std::map<uint64_t, Stream> streams_;
  std::map<SessionId, size_t> read_bytes_;  // in host memory now, or about to be
  bool pump_posted_ = false;
  bool watching_ = false;
  transport::Looks looks_;
  std::atomic<uint64_t> sent_bytes_ = 0;
  std::atomic<uint64_t> sent_shared_bytes_ = 0;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_SENDER_H_
