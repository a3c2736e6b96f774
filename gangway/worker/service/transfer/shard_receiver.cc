// Implementation of shard_receiver.h.
#include "gangway/worker/service/transfer/shard_receiver.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/version.h"

namespace gangway::worker {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{1000};

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
  PeerPtr& peer = peers_[Incarnation(asking.from.incarnation())];
  const bool dial = peer == nullptr;
  if (dial) {
    peer = std::make_shared<Peer>();
    peer->worker = asking.from;
  }
  peer->silence.Await(Clock::now());
  peer->asked.insert(key);
  entry->second.staged = transport::StagedShard(asking.size);
  entry->second.asking = std::move(asking);
  if (dial) return Dial(peer);
  if (peer->greeted) SendRequest(*peer, entry->second);
}

void ShardReceiver::Dial(const PeerPtr& peer) {
  transport::LinkEvents events;
  events.executor = options_.loop;
  events.on_frame = [this, peer](const wire::Frame& frame) { OnFrame(peer, frame); };
  events.on_closed = [this, peer](const absl::Status& why) { Lose(peer, why); };
  dialer_.Dial({.address = peer->worker.data_address(),
                .events = std::move(events),
                .limit = options_.connect_limit,
                .wanted = [this, peer] { return IsPeer(peer); },
                .dialed =
                    [this, peer](absl::StatusOr<std::shared_ptr<transport::Link>> link) {
                      OnDialed(peer, std::move(link));
                    }});
}

bool ShardReceiver::IsPeer(const PeerPtr& peer) const {
  auto known = peers_.find(Incarnation(peer->worker.incarnation()));
  return !closed_ && known != peers_.end() && known->second == peer;
}

void ShardReceiver::OnDialed(const PeerPtr& peer,
                             absl::StatusOr<std::shared_ptr<transport::Link>> link) {
  if (!link.ok()) return Lose(peer, link.status());
  if (!IsPeer(peer)) return (*link)->Close(absl::CancelledError("no longer needed"));
  peer->link = *std::move(link);
  peer->silence.Hear(Clock::now());
  SendHello(*peer);
  if (!std::exchange(watching_, true)) WatchSilence();
}

void ShardReceiver::OnGreeted(const PeerPtr& peer, const wire::HelloReply& reply) {
  if (reply.has_failure()) return Lose(peer, wire::ToStatus(reply.failure()));
  if (std::exchange(peer->greeted, true)) return;
  if (options_.shared_bytes_max != 0) peer->segments.Connect(reply);
  for (TransferKey key : std::set<TransferKey>(peer->asked)) {
    if (peer->link != nullptr) SendRequest(*peer, asked_.at(key));
  }
}

void ShardReceiver::SendHello(Peer& peer) {
  wire::Frame frame;
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_role(wire::ROLE_PEER);
  hello.set_token(token_);
  hello.set_name(options_.identity.name);
  hello.set_process_id(ProcessId());
  Send(peer, std::move(frame));
}

void ShardReceiver::SendRequest(Peer& peer, Asked& asked) {
  const TransferPlane::Asking& asking = asked.asking;
  wire::Frame frame;
  SetName(asking.key, *frame.mutable_bulk()->mutable_name());
  wire::ShardRequest& request = *frame.mutable_bulk()->mutable_request();
  request.set_token(asking.token.ask);
  if (asking.size >= options_.shared_shard_min) {
    if (auto block = pool_.Allocate(peer.segments, asking.size)) {
      *request.mutable_into() = transport::NameOf(*block, asking.size);
      asked.staged.Lend(std::move(block));
    }
  }
  Send(peer, std::move(frame));
  if (!std::exchange(watching_, true)) WatchSilence();
}

void ShardReceiver::DropIdleMemory() {
  const std::vector<uint64_t> dropped = pool_.DropIdle(Clock::now());
  for (const auto& [incarnation, peer] : peers_) {
    const std::vector<uint64_t> gone = peer->segments.TakeGone(dropped);
    if (gone.empty() || peer->link == nullptr) continue;
    wire::Frame frame;
    frame.mutable_bulk()->mutable_gone()->mutable_segments()->Add(gone.begin(), gone.end());
    Send(*peer, std::move(frame));
  }
}

void ShardReceiver::SendReceived(Peer& peer, TransferKey key) {
  wire::Frame frame;
  SetName(key, *frame.mutable_bulk()->mutable_name());
  frame.mutable_bulk()->mutable_received();
  Send(peer, std::move(frame));
}

// Ignores errors: a stream that takes no small frame is cut, and WatchSilence detects that.
void ShardReceiver::Send(Peer& peer, wire::Frame frame) {
  frame.set_incarnation(peer.worker.incarnation());
  frame.set_sequence(peer.sequence + 1);
  if (peer.link->Send(std::move(frame)).ok()) ++peer.sequence;
}

void ShardReceiver::OnFrame(const PeerPtr& peer, const wire::Frame& frame) {
  if (peer->link == nullptr) return;  // already lost
  peer->silence.Hear(Clock::now());
  if (frame.has_hello_reply()) {
    OnGreeted(peer, frame.hello_reply());
  } else if (frame.has_bulk()) {
    OnBulk(peer, frame.bulk());
  }
}

void ShardReceiver::OnBulk(const PeerPtr& peer, const wire::Bulk& bulk) {
  if (!bulk.has_bytes() && !bulk.has_placed()) return;
  const TransferKey key{Ordinal(bulk.name().transfer()), bulk.name().shard()};
  if (!bulk.name().has_transfer() || !peer->asked.contains(key)) return;  // already cancelled
  const Asked& asked = asked_.at(key);
  const std::string& proof = bulk.has_placed() ? bulk.placed().proof() : bulk.bytes().proof();
  if (!asked.staged.begun() && proof != asked.asking.token.proof) {
    return Lose(peer, absl::PermissionDeniedError(absl::StrCat(
                          "the process at ", peer->worker.data_address(),
                          " sent a shard without the copy's proof; it is not the worker that was "
                          "asked")));
  }
  if (bulk.has_placed()) return OnPlaced(peer, key);
  OnBytes(peer, key, bulk.bytes());
}

void ShardReceiver::OnBytes(const PeerPtr& peer, TransferKey key, const wire::ShardBytes& bytes) {
  Asked& asked = asked_.at(key);
  asked.staged.ReturnBlock();  // the sender chose the stream and wrote nothing into the block
  if (absl::Status taken = Take(asked, bytes); !taken.ok()) return End(key, taken);
  received_bytes_ += bytes.data().size();
  if (!asked.staged.complete()) return;
  SendReceived(*peer, key);
  transport::StagedShard::Bytes all = asked.staged.TakeBytes();
  auto charge = std::make_shared<StagingMemory::Charge>(std::move(asked.charge));
  End(key, ShardBytes{all.bytes, std::move(all.owner), std::move(charge)});
}

void ShardReceiver::OnPlaced(const PeerPtr& peer, TransferKey key) {
  Asked& asked = asked_.at(key);
  if (absl::Status placed = asked.staged.Place(); !placed.ok()) {
    return End(key, absl::InternalError(absl::StrCat(Name(peer->worker), " sent a shard wrongly: ",
                                                     std::string(placed.message()))));
  }
  received_bytes_ += asked.asking.size;
  received_shared_bytes_ += asked.asking.size;
  SendReceived(*peer, key);
  transport::StagedShard::Bytes bytes = asked.staged.TakeBytes();
  End(key, ShardBytes{bytes.bytes, std::move(bytes.owner), nullptr});
}

absl::Status ShardReceiver::Take(Asked& asked, const wire::ShardBytes& bytes) {
  absl::Status taken = asked.staged.Take(
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

void ShardReceiver::Lose(const PeerPtr& peer, const absl::Status& why) {
  auto known = peers_.find(Incarnation(peer->worker.incarnation()));
  if (known != peers_.end() && known->second == peer) peers_.erase(known);
  // The link's events own the peer, so the peer must release the link.
  if (auto link = std::exchange(peer->link, nullptr)) link->Close(why);
  for (TransferKey key : std::exchange(peer->asked, {})) {
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDataLoss,
                          absl::StrCat("shard ", key.shard, " was lost on its way from ",
                                       Name(peer->worker), ": ", std::string(why.message())),
                          "Copy the array again if its source still exists.");
    failure.set_worker(Name(peer->worker));
    failure.set_incarnation(peer->worker.incarnation());
    failure.set_gang(key.ordinal.number());
    failure.set_shard(key.shard);
    End(key, wire::ToStatus(failure));
  }
}

bool ShardReceiver::Cancel(TransferKey key, const absl::Status& why) {
  auto entry = asked_.find(key);
  if (entry == asked_.end()) return false;
  auto peer = peers_.find(Incarnation(entry->second.asking.from.incarnation()));
  const bool is_asked = peer != peers_.end() && peer->second->greeted;
  if (is_asked) {
    wire::Frame frame;
    SetName(key, *frame.mutable_bulk()->mutable_name());
    frame.mutable_bulk()->mutable_dropped();
    Send(*peer->second, std::move(frame));
  }
  End(key, why);
  return true;
}

void ShardReceiver::End(TransferKey key, absl::StatusOr<ShardBytes> outcome) {
  auto entry = asked_.extract(key);  // whose block the sender may still write
  if (entry.empty()) return;
  TransferPlane::Asking& asking = entry.mapped().asking;
  if (auto peer = peers_.find(Incarnation(asking.from.incarnation())); peer != peers_.end()) {
    peer->second->asked.erase(key);
    if (peer->second->asked.empty()) peer->second->silence.Rest();
  }
  asking.arrived(std::move(outcome));
}

void ShardReceiver::Close(const absl::Status& why) {
  closed_ = true;
  while (!peers_.empty()) {
    const PeerPtr peer = peers_.begin()->second;  // Lose erases it
    Lose(peer, why);
  }
}

// Sends heartbeats while shards are due; otherwise no timer runs.
void ShardReceiver::WatchSilence() {
  const Clock::time_point now = Clock::now();
  std::vector<PeerPtr> silent;
  watching_ = false;
  for (const auto& [incarnation, peer] : peers_) {
    if (peer->link == nullptr || peer->asked.empty()) continue;
    watching_ = true;
    if (peer->silence.IsTooLong(now, options_.silence_max)) {
      silent.push_back(peer);
      continue;
    }
    wire::Frame frame;
    frame.mutable_heartbeat()->set_time_ns(static_cast<uint64_t>(now.time_since_epoch().count()));
    Send(*peer, std::move(frame));
  }
  for (const PeerPtr& peer : silent) {
    Lose(peer, absl::DeadlineExceededError(
                   absl::StrCat("silent for ", options_.silence_max.count(), " ms")));
  }
  if (watching_) options_.loop->PostAt(now + kBeatInterval, [this] { WatchSilence(); });
}

}  // namespace gangway::worker
