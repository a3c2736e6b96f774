// The receiving half of transfers over streams: one stream to each sending worker, and the shards
// that are requested on it, those of one transfer together. Belongs to one event loop; connecting,
// which blocks, runs on its own thread and posts the outcome back.
//
// If the sender is on this host, a request names a block of shared memory for each large shard, and
// the sender writes the shard into it. A sender is on this host if the unix socket that it names can
// be reached. Small shards, and those for which the pool has no room, arrive on the stream, those of
// a transfer packed. If a sender may still write into a block after its request ended, the block is
// never reused.
//
// A request that is cancelled is dropped: its sender is told, which may keep it for a shard that is never offered.
//
// A stream (bulk_link.h) is keyed by its worker's incarnation, opened at the first request and kept. If it cannot
// be opened, closes, or is silent for `silence_max` while shards are due (TM-1), these shards fail
// with DATA_LOSS and a record that names the worker. The next request opens another one.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_RECEIVER_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_RECEIVER_H_

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gangway/base/executor.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/incoming_batch.h"
#include "gangway/transport/bulk/lending_pool.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/bulk/silence.h"
#include "gangway/transport/dialer.h"
#include "gangway/transport/transport.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class ShardReceiver {
 public:
  struct Options {
    EventLoop* loop = nullptr;
    transport::Transport* transport = nullptr;
    Identity identity;
    std::chrono::milliseconds silence_max{10'000};
    std::shared_ptr<StagingMemory>
        staging;  // what shards that arrive on streams are charged to; null: nothing
    size_t shared_bytes_max = 0;                        // of the pool; 0: no shared memory
    size_t shared_shard_min = 0;                        // smaller shards arrive on the stream
    std::chrono::milliseconds shared_idle_max{10'000};  // then memory returns to the system
    std::function<std::shared_ptr<void>(std::span<std::byte>)> pin;  // as in SharedPool::Options
  };
  explicit ShardReceiver(Options options);  // destroyed after Close, and the loop has stopped

  void SetToken(std::string token) { token_ = std::move(token); }  // for the Hello
  void Ask(TransferPlane::Asking asking);
  // False: the shard was not requested.
  bool Cancel(TransferKey key, const absl::Status& why);
  void Close(const absl::Status& why);

  uint64_t received_bytes() const { return received_bytes_; }                // any thread
  uint64_t received_shared_bytes() const { return received_shared_bytes_; }  // a part of them

 private:
  struct Asked {
    TransferPlane::Asking asking;
    StagingMemory::Charge charge;       // of what arrives on the stream
    transport::IncomingBatch incoming;  // lends the blocks that the sender may write
  };
  // A worker and its stream.
  struct Peer {
    wire::Worker worker;
    std::shared_ptr<transport::BulkLink> link;
    transport::SegmentExchange segments;
    std::set<TransferKey> asked;  // sent once the link is open
  };

  void Dial(Incarnation incarnation);
  absl::Status OnBulk(Peer& peer, const wire::Bulk& bulk);
  void OnBytes(Peer& peer, TransferKey key, const wire::ShardBytes& bytes);
  absl::Status Take(Asked& asked, const wire::ShardBytes& bytes);
  void OnPlaced(Peer& peer, TransferKey key);
  void Complete(Peer& peer, TransferKey key);
  void OnOpen(Peer& peer, const wire::HelloReply& answer);
  void DropIdleMemory();
  void SendRequest(Peer& peer, Asked& asked);
  void LendBlocks(Peer& peer, Asked& asked, wire::ShardRequest& request);
  static void SendReceived(Peer& peer, TransferKey key);
  void Lose(Incarnation incarnation, const absl::Status& why);
  void End(TransferKey key, absl::StatusOr<std::vector<ShardBytes>> outcome);
  void WatchSilence();

  const Options options_;
  std::string token_;
  std::map<Incarnation, Peer> peers_;
  std::map<TransferKey, Asked> asked_;
  bool closed_ = false;
  bool watching_ = false;
  transport::Looks looks_;
  std::atomic<uint64_t> received_bytes_ = 0;
  std::atomic<uint64_t> received_shared_bytes_ = 0;
  transport::LendingPool pool_;
  transport::Dialer dialer_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_SHARD_RECEIVER_H_
