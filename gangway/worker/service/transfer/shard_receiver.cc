// Implementation of shard_receiver.h.
#include "gangway/worker/service/transfer/shard_receiver.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

std::string Name(const wire::Worker& worker) {
  return absl::StrCat("island", worker.island(), "/worker", worker.index());
}

void SetName(TransferKey key, wire::ShardName& name) {
  name.set_transfer(key.ordinal.number());
  name.set_shard(key.shard);
}

}  // namespace

ShardReceiver::ShardReceiver(Options options)
    : options_(std::move(options)),
      pool_({.bytes_max = options_.shared_bytes_max,
             .idle_max = options_.shared_idle_max,
             .drop_later =
                 [this] {
                   options_.loop->PostAt(Clock::now() + options_.shared_idle_max,
                                         [this] { DropIdleMemory(); });
                 },
             .pin = options_.pin}),
      dialer_(options_.loop, options_.transport) {}

void ShardReceiver::Ask(TransferPlane::Asking asking) {
  if (closed_) return asking.arrived(absl::UnavailableError("The worker is shutting down."));
  TransferKey key = asking.key;
  auto [entry, is_new] = asked_.try_emplace(key);
  if (!is_new) return asking.arrived(absl::InternalError("The shard was already requested."));
  const Incarnation incarnation(asking.from.incarnation());
  Peer& peer = peers_[incarnation];
  const bool dial = peer.link == nullptr;
  if (dial) peer.worker = asking.from;
  peer.asked.insert(key);
  entry->second.incoming = transport::IncomingBatch(asking.sizes);
  entry->second.asking = std::move(asking);
  if (dial) Dial(incarnation);
  peer.link->Await(Clock::now());
  if (peer.link->is_open()) SendRequest(peer, entry->second);
  if (!watching_) WatchSilence();
}

void ShardReceiver::Dial(Incarnation incarnation) {
  Peer& peer = peers_.at(incarnation);
  transport::BulkLink::Options options;
  options.loop = options_.loop;
  options.dialer = &dialer_;
  options.address = peer.worker.data_address();
  options.stamp.incarnation = incarnation;
  transport::BulkLink::Events events;
  events.on_open = [this, incarnation](const wire::HelloReply& answer) {
    OnOpen(peers_.at(incarnation), answer);
  };
  events.on_lost = [this, incarnation](const absl::Status& why, transport::BulkLink::State) {
    Lose(incarnation, why);
  };
  peer.link = std::make_shared<transport::BulkLink>(std::move(options), std::move(events));
  wire::Hello hello;
  hello.set_role(wire::ROLE_PEER);
  hello.set_token(token_);
  hello.set_name(options_.identity.name);
  peer.link->Dial(std::move(hello), [this, incarnation](const wire::Frame& frame) {
    return frame.has_bulk() ? OnBulk(peers_.at(incarnation), frame.bulk()) : absl::OkStatus();
  });
}

void ShardReceiver::OnOpen(Peer& peer, const wire::HelloReply& answer) {
  if (options_.shared_bytes_max != 0) peer.segments.Connect(answer);
  for (TransferKey key : peer.asked) SendRequest(peer, asked_.at(key));
}

void ShardReceiver::SendRequest(Peer& peer, Asked& asked) {
  const TransferPlane::Asking& asking = asked.asking;
  wire::Frame frame;
  SetName(asking.key, *frame.mutable_bulk()->mutable_name());
  wire::ShardRequest& request = *frame.mutable_bulk()->mutable_request();
  request.set_token(asking.token.ask);
  LendBlocks(peer, asked, request);
  peer.link->Send(std::move(frame)).IgnoreError();  // WatchSilence detects a stream that is cut
}

void ShardReceiver::LendBlocks(Peer& peer, Asked& asked, wire::ShardRequest& request) {
  transport::IncomingBatch& incoming = asked.incoming;
  bool lends = false;
  for (size_t i = 0; i < incoming.count(); ++i) {
    wire::SharedBlock& into = *request.add_into();
    const size_t size = incoming.size_of(i);
    if (size == 0 || size < options_.shared_shard_min) continue;
    auto block = pool_.Allocate(peer.segments, size);
    if (block == nullptr) continue;
    into = transport::NameOf(*block, size);
    incoming.Lend(i, std::move(block));
    lends = true;
  }
  if (!lends) request.clear_into();
}

void ShardReceiver::DropIdleMemory() {
  const std::vector<uint64_t> dropped = pool_.DropIdle(Clock::now());
  for (auto& [incarnation, peer] : peers_) {
    const std::vector<uint64_t> gone = peer.segments.TakeGone(dropped);
    if (gone.empty()) continue;
    wire::Frame frame;
    frame.mutable_bulk()->mutable_gone()->mutable_segments()->Add(gone.begin(), gone.end());
    peer.link->Send(std::move(frame)).IgnoreError();
  }
}

void ShardReceiver::SendReceived(Peer& peer, TransferKey key) {
  wire::Frame frame;
  SetName(key, *frame.mutable_bulk()->mutable_name());
  frame.mutable_bulk()->mutable_received();
  peer.link->Send(std::move(frame)).IgnoreError();
}

absl::Status ShardReceiver::OnBulk(Peer& peer, const wire::Bulk& bulk) {
  if (!bulk.has_bytes() && !bulk.has_placed()) return absl::OkStatus();
  const TransferKey key{Ordinal(bulk.name().transfer()), bulk.name().shard()};
  const bool is_due = bulk.name().has_transfer() && peer.asked.contains(key);
  if (!is_due) return absl::OkStatus();  // already cancelled
  const Asked& asked = asked_.at(key);
  const std::string& proof = bulk.has_placed() ? bulk.placed().proof() : bulk.bytes().proof();
  if (!asked.incoming.begun() && proof != asked.asking.token.proof) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the process at ", peer.worker.data_address(),
        " sent a shard without the copy's proof; it is not the worker that was asked"));
  }
  if (bulk.has_placed()) {
    OnPlaced(peer, key);
  } else {
    OnBytes(peer, key, bulk.bytes());
  }
  return absl::OkStatus();
}

void ShardReceiver::OnBytes(Peer& peer, TransferKey key, const wire::ShardBytes& bytes) {
  if (absl::Status taken = Take(asked_.at(key), bytes); !taken.ok()) return End(key, taken);
  received_bytes_ += bytes.data().size();
  Complete(peer, key);
}

void ShardReceiver::OnPlaced(Peer& peer, TransferKey key) {
  transport::IncomingBatch& incoming = asked_.at(key).incoming;
  if (absl::Status placed = incoming.Place(); !placed.ok()) {
    return End(key, absl::InternalError(absl::StrCat(Name(peer.worker), " sent a shard wrongly: ",
                                                     std::string(placed.message()))));
  }
  received_bytes_ += incoming.placed_bytes();
  received_shared_bytes_ += incoming.placed_bytes();
  Complete(peer, key);
}

// Nothing yet, if bytes are missing.
void ShardReceiver::Complete(Peer& peer, TransferKey key) {
  Asked& asked = asked_.at(key);
  if (!asked.incoming.complete()) return;
  SendReceived(peer, key);
  const auto charge = std::make_shared<StagingMemory::Charge>(std::move(asked.charge));
  std::vector<ShardBytes> shards;
  for (transport::IncomingBatch::Bytes& bytes : asked.incoming.TakeBytes())
    shards.push_back({bytes.bytes, std::move(bytes.owner), charge});
  End(key, std::move(shards));
}

absl::Status ShardReceiver::Take(Asked& asked, const wire::ShardBytes& bytes) {
  absl::Status taken = asked.incoming.Take(
      transport::PieceOf(bytes), bytes.data(), [&](uint64_t size) -> absl::Status {
        if (options_.staging == nullptr) return absl::OkStatus();
        auto more =
            options_.staging->Take(asked.asking.session, size, StagingMemory::Order::kIfRoom);
        if (!more.ok()) return more.status();
        asked.charge.Add(*std::move(more));
        return absl::OkStatus();
      });
  if (!absl::IsInvalidArgument(taken)) return taken;
  return absl::InternalError(
      absl::StrCat(Name(asked.asking.from), " sent ", std::string(taken.message())));
}

void ShardReceiver::Lose(Incarnation incarnation, const absl::Status& why) {
  auto entry = peers_.extract(incarnation);
  if (entry.empty()) return;
  Peer& peer = entry.mapped();
  peer.link->Close(why);
  for (TransferKey key : peer.asked) {
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDataLoss,
                          absl::StrCat("shard ", key.shard, " was lost on its way from ",
                                       Name(peer.worker), ": ", std::string(why.message())),
                          "Copy the array again if its source still exists.");
    failure.set_worker(Name(peer.worker));
    failure.set_incarnation(peer.worker.incarnation());
    failure.set_gang(key.ordinal.number());
    failure.set_shard(key.shard);
    End(key, wire::ToStatus(failure));
  }
}

bool ShardReceiver::Cancel(TransferKey key, const absl::Status& why) {
  auto entry = asked_.find(key);
  if (entry == asked_.end()) return false;
  auto peer = peers_.find(Incarnation(entry->second.asking.from.incarnation()));
  const bool is_asked = peer != peers_.end() && peer->second.link->is_open();
  if (is_asked) {
    wire::Frame frame;
    SetName(key, *frame.mutable_bulk()->mutable_name());
    frame.mutable_bulk()->mutable_dropped();
    peer->second.link->Send(std::move(frame)).IgnoreError();
  }
  End(key, why);
  return true;
}

void ShardReceiver::End(TransferKey key, absl::StatusOr<std::vector<ShardBytes>> outcome) {
  auto entry = asked_.extract(key);  // whose block the sender may still write
  if (entry.empty()) return;
  TransferPlane::Asking& asking = entry.mapped().asking;
  if (auto peer = peers_.find(Incarnation(asking.from.incarnation())); peer != peers_.end()) {
    peer->second.asked.erase(key);
    if (peer->second.asked.empty()) peer->second.link->Rest();
  }
  asking.arrived(std::move(outcome));
}

void ShardReceiver::Close(const absl::Status& why) {
  closed_ = true;
  while (!peers_.empty()) Lose(peers_.begin()->first, why);
}

// Asks for signs of life while shards are due; otherwise no timer runs.
void ShardReceiver::WatchSilence() {
  const Clock::time_point now = Clock::now();
  const Clock::duration stood_still = looks_.StoodStill(now, transport::BulkLink::kAskInterval);
  std::vector<Incarnation> silent;
  watching_ = false;
  for (auto& [incarnation, peer] : peers_) {
    if (peer.asked.empty()) continue;
    watching_ = true;
    peer.link->Skip(stood_still, now);
    if (peer.link->IsSilent(now, options_.silence_max)) {
      silent.push_back(incarnation);
    } else if (peer.link->is_open()) {
      peer.link->Ask();
    }
  }
  for (Incarnation incarnation : silent) {
    Lose(incarnation, absl::DeadlineExceededError(
                          absl::StrCat("silent for ", options_.silence_max.count(), " ms")));
  }
  if (!watching_) return;
  options_.loop->PostAt(now + transport::BulkLink::kAskInterval, [this] { WatchSilence(); });
}

}  // namespace gangway::worker
