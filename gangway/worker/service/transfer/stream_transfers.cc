// Implementation of stream_transfers.h.
#include "gangway/worker/service/transfer/stream_transfers.h"

#include <utility>

#include "gangway/transport/handshake/data_token.h"

namespace gangway::worker {

StreamTransfers::StreamTransfers(Options options)
    : own_loop_(options.loop == nullptr ? std::make_unique<EventLoop>("transfers") : nullptr),
      loop_(options.loop == nullptr ? own_loop_.get() : options.loop),
      sender_({.loop = loop_,
               .incarnation = options.identity.incarnation,
               .silence_max = options.silence_max,
               .staging = options.staging,
               .callbacks = std::move(options.callbacks),
               .on_refused = std::move(options.on_refused),
               .shared_memory = options.shared_bytes_max != 0}),
      receiver_({.loop = loop_,
                 .transport = options.transport,
                 .identity = std::move(options.identity),
                 .silence_max = options.silence_max,
                 .staging = options.charge_received ? options.staging : nullptr,
                 .shared_bytes_max = options.shared_bytes_max,
                 .shared_shard_min = options.shared_shard_min,
                 .pin = std::move(options.pin)}) {}

StreamTransfers::~StreamTransfers() = default;

void StreamTransfers::SetDataKey(const std::string& key) {
  loop_->Post(
      [this, token = transport::DataToken(key, kPeerSession)] { receiver_.SetToken(token); });
}

void StreamTransfers::Offer(Offering offering) {
  loop_->Post(
      [this, offering = std::move(offering)]() mutable { sender_.Offer(std::move(offering)); });
}

void StreamTransfers::Settle(TransferKey key, absl::StatusOr<Buffers> shards) {
  loop_->Post([this, key, shards = std::move(shards)]() mutable {
    sender_.Settle(key, std::move(shards));
  });
}

void StreamTransfers::Ask(Asking asking) {
  loop_->Post([this, asking = std::move(asking)]() mutable { receiver_.Ask(std::move(asking)); });
}

void StreamTransfers::Cancel(TransferKey key, absl::Status why) {
  loop_->Post([this, key, why = std::move(why)] {
    if (!sender_.Cancel(key, why)) receiver_.Cancel(key, why);
  });
}

void StreamTransfers::AcceptPeer(uint64_t id, std::shared_ptr<transport::Link> link,
                                 const wire::Hello& hello) {
  loop_->Post([this, id, link = std::move(link), peer = hello.name()]() mutable {
    sender_.Accept(id, std::move(link), std::move(peer));
  });
}

void StreamTransfers::OnPeerFrame(uint64_t id, wire::Frame frame) {
  loop_->Post([this, id, frame = std::move(frame)] { sender_.OnFrame(id, frame); });
}

void StreamTransfers::OnPeerWritable(uint64_t id) {
  loop_->Post([this, id] { sender_.OnWritable(id); });
}

void StreamTransfers::OnPeerClosed(uint64_t id) {
  loop_->Post([this, id] { sender_.OnClosed(id); });
}

void StreamTransfers::Stop() {
  loop_->Post([this] {
    const absl::Status ends = absl::UnavailableError("The worker is shutting down.");
    sender_.Close(ends);
    receiver_.Close(ends);
  });
  if (own_loop_ != nullptr) own_loop_->Stop();
}

}  // namespace gangway::worker
