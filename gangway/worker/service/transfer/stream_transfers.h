// The transfer plane over streams of frames, on any transport; between workers of one host the
// bytes go through shared memory and the streams carry the rest. Both halves run on one event loop
// of their own, so that bulk bytes delay no other work.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_TRANSFERS_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_TRANSFERS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "gangway/base/executor.h"
#include "gangway/transport/transport.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/device/in_flight.h"
#include "gangway/worker/service/transfer/peer_streams.h"
#include "gangway/worker/service/transfer/shard_receiver.h"
#include "gangway/worker/service/transfer/shard_sender.h"
#include "gangway/worker/service/transfer/transfer_plane.h"

namespace gangway::worker {

class StreamTransfers final : public TransferPlane, public PeerStreams {
 public:
  struct Options {
    Identity identity;
    transport::Transport* transport = nullptr;  // outlives this
    EventLoop* loop = nullptr;            // others' too, which outlives this; null: one of its own
    std::shared_ptr<InFlight> callbacks;  // counts those that the device runtime owes
    std::function<void(uint64_t id)> on_refused;    // an incoming stream was closed; any thread
    std::chrono::milliseconds silence_max{10'000};  // of a worker that shards go to or come from
    std::shared_ptr<StagingMemory> staging;         // for shards to send
    bool charge_received = false;  // received shards, too: devices do not take them as they are
    size_t shared_bytes_max = 0;   // of memory that senders write shards into; 0: streams only
    size_t shared_shard_min = 0;
    std::function<std::shared_ptr<void>(std::span<std::byte>)> pin;  // as in SharedPool::Options
  };
  explicit StreamTransfers(Options options);
  ~StreamTransfers() override;  // after Stop

  // The key that signs the Hello of streams to other workers. To be set before the first Ask.
  void SetDataKey(const std::string& key);

  void Offer(Offering offering) override;
  void Settle(TransferKey key, absl::StatusOr<Buffers> shards) override;
  void Ask(Asking asking) override;
  void Cancel(TransferKey key, absl::Status why) override;

  // Streams that request shards. Any thread.
  void AcceptPeer(uint64_t id, std::shared_ptr<transport::Link> link,
                  const wire::Hello& hello) override;
  void OnPeerFrame(uint64_t id, wire::Frame frame) override;
  void OnPeerWritable(uint64_t id) override;
  void OnPeerClosed(uint64_t id) override;

  uint64_t sent_bytes() const { return sender_.sent_bytes(); }
  uint64_t received_bytes() const { return receiver_.received_bytes(); }
  uint64_t sent_shared_bytes() const { return sender_.sent_shared_bytes(); }
  uint64_t received_shared_bytes() const { return receiver_.received_shared_bytes(); }

  // Ends all transfers and streams, and its own loop. To be called once, not on the loop.
  void Stop();

 private:
  const std::unique_ptr<EventLoop> own_loop_;
  EventLoop* const loop_;
  ShardSender sender_;
  ShardReceiver receiver_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_TRANSFERS_H_
