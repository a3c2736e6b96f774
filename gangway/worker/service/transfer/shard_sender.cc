// Implementation of shard_sender.h.
#include "gangway/worker/service/transfer/shard_sender.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/device/element_type.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/device/node_task.h"

namespace gangway::worker {
namespace {

constexpr size_t kPieceBytesMax = size_t{1} << 20;
// Copying so few bytes takes less time than to wake a thread of the device runtime that does it, and this one again.
constexpr size_t kReadHereMax = size_t{64} << 10;
constexpr size_t kActiveMax = 4;       // shards of a session that take turns on a stream
constexpr size_t kParkedMax = 65'536;  // per stream: requests, and blocks that they name
constexpr std::chrono::milliseconds kWatchInterval{500};

// The time that this takes does not reveal how much of a guess was right.
bool SameSecret(const std::string& a, const std::string& b) {
  if (a.size() != b.size() || a.empty()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

size_t Parked(const wire::ShardRequest& request) {
  return 1 + static_cast<size_t>(request.into_size());
}

}  // namespace

ShardSender::ShardSender(Options options) : options_(std::move(options)) {
  if (!options_.shared_memory) return;
  auto listener = transport::DescriptorListener::Open();
  if (listener.ok()) listener_ = *std::move(listener);
}

void ShardSender::Accept(uint64_t id, std::shared_ptr<transport::Link> link, std::string peer) {
  Stream& stream = streams_[id];
  stream.piece_bytes_max = std::min(kPieceBytesMax, link->frame_bytes_max() / 2);
  stream.link = std::make_shared<transport::BulkLink>(
      std::move(link), transport::FrameSender::Stamp{.incarnation = options_.incarnation});
  stream.peer = std::move(peer);
  stream.link->Await(Clock::now());
  wire::HelloReply answer;
  stream.segments.Listen(listener_.get(), answer);
  stream.link->Answer(std::move(answer));
}

void ShardSender::OnFrame(uint64_t id, const wire::Frame& frame) {
  auto stream = streams_.find(id);
  if (stream == streams_.end()) return;
  transport::BulkLink& link = *stream->second.link;
  link.Hear(Clock::now());
  if (frame.has_heartbeat()) {
    // A full queue already proves liveness.
    link.Send(transport::BulkLink::ReplyTo(frame)).IgnoreError();
  } else if (frame.has_bulk()) {
    OnBulk(id, stream->second, frame.bulk());
  }
}

void ShardSender::OnBulk(uint64_t id, Stream& stream, const wire::Bulk& bulk) {
  for (uint64_t segment : bulk.gone().segments()) stream.segments.Forget(segment);
  if (!bulk.name().has_transfer()) return;
  const TransferKey key{Ordinal(bulk.name().transfer()), bulk.name().shard()};
  if (bulk.has_received()) return OnReceived(id, key);
  if (bulk.has_request()) OnRequest(id, stream, key, bulk.request());
  if (bulk.has_dropped()) OnDropped(id, stream, key);
}

void ShardSender::OnReceived(uint64_t id, TransferKey key) {
  auto offered = offered_.find(key);
  const bool mine = offered != offered_.end() && offered->second.stream == id;
  if (mine && offered->second.state == State::kSent) End(key, absl::OkStatus());
}

void ShardSender::OnRequest(uint64_t id, Stream& stream, TransferKey key,
                            const wire::ShardRequest& request) {
  if (offered_.contains(key)) return Assign(key, id, request);
  stream.parked += Parked(request);
  if (stream.parked > kParkedMax) {
    return Refuse(id, absl::ResourceExhaustedError(absl::StrCat("More than ", kParkedMax,
                                                                " requests wait for shards that "
                                                                "were never offered.")));
  }
  parked_.emplace(ParkedKey{key, id}, request);
}

// The offer of a shard is ended by a Cancel, not by this.
void ShardSender::OnDropped(uint64_t id, Stream& stream, TransferKey key) {
  const auto [first, last] = parked_.equal_range({key, id});
  for (auto it = first; it != last; ++it) stream.parked -= Parked(it->second);
  parked_.erase(first, last);
}

void ShardSender::Assign(TransferKey key, uint64_t id, const wire::ShardRequest& request) {
  Offered& offered = offered_.at(key);
  if (!SameSecret(request.token(), offered.offering.token.ask) || offered.stream != 0) {
    return Refuse(id, absl::PermissionDeniedError(
                          absl::StrCat("Shard ", key.shard, " of copy ", key.ordinal,
                                       " was requested without its token, or twice.")));
  }
  offered.stream = id;
  Stream& stream = streams_.at(id);
  for (const wire::SharedBlock& into : request.into()) {
    Target& target = offered.targets.emplace_back(Target{.memory = nullptr, .size = into.size()});
    if (into.size() == 0) continue;
    target.memory = stream.segments.Find(into, [&stream](const absl::Status& why) {
      spdlog::warn("No shared memory with {}: {}", stream.peer, std::string(why.message()));
    });
  }
  if (!std::exchange(watching_, true))
    options_.loop->PostAt(Clock::now() + kWatchInterval, [this] { WatchDeadlines(); });
  Advance(key);
}

void ShardSender::Offer(TransferPlane::Offering offering) {
  TransferKey key = offering.key;
  auto [entry, is_new] = offered_.try_emplace(key);
  if (!is_new) return offering.taken(absl::InternalError("The shard is already offered."));
  entry->second.offering = std::move(offering);
  const auto first = parked_.lower_bound({key, 0});
  const auto last = parked_.upper_bound({key, UINT64_MAX});
  std::vector<std::pair<uint64_t, wire::ShardRequest>> requests;
  for (auto it = first; it != last; ++it) {
    streams_.at(it->first.second).parked -= Parked(it->second);
    requests.emplace_back(it->first.second, std::move(it->second));
  }
  parked_.erase(first, last);
  for (const auto& [stream, request] : requests) {
    if (streams_.contains(stream) && offered_.contains(key)) Assign(key, stream, request);
  }
}

void ShardSender::Settle(TransferKey key, absl::StatusOr<TransferPlane::Buffers> shards) {
  auto entry = offered_.find(key);
  if (entry == offered_.end() || entry->second.state != State::kUnsettled) return;
  Offered& offered = entry->second;
  offered.state = State::kSettled;
  if (shards.ok()) {
    offered.buffers = *std::move(shards);
  } else {
    offered.failure = shards.status();
  }
  for (const auto& buffer : offered.buffers) {
    const std::optional<size_t> size = device::HostBytes(buffer->spec());
    if (!size)
      offered.failure = absl::InternalError("A shard's element type has no size in host memory.");
    offered.sizes.push_back(size.value_or(0));
  }
  Advance(key);
}

// Queues an offer that is both requested and settled, and ends one that was settled with an error.
void ShardSender::Advance(TransferKey key) {
  Offered& offered = offered_.at(key);
  if (offered.state != State::kSettled) return;
  // Not sent on the stream: the scheduler notifies the receiver, with the root cause's record.
  if (!offered.failure.ok()) return End(key, absl::Status(offered.failure));
  auto stream = streams_.find(offered.stream);
  if (stream == streams_.end()) return;
  ChooseWays(offered);
  stream->second.waiting.Push(offered.offering.session, transport::ShardSize::kLarge, key);
  Pump(stream->first);
}

// All on the stream, unless each block that was named can be written and has the size of its shard.
void ShardSender::ChooseWays(Offered& offered) {
  bool fits = offered.targets.size() == offered.buffers.size();
  for (size_t i = 0; fits && i < offered.targets.size(); ++i) {
    const Target& target = offered.targets[i];
    fits = target.size == 0 || (target.memory != nullptr && target.size == offered.sizes[i]);
  }
  if (!fits) offered.targets.clear();
  for (size_t i = 0; i < offered.sizes.size(); ++i) {
    if (offered.targets.empty() || offered.targets[i].memory == nullptr)
      offered.stream_bytes += offered.sizes[i];
  }
}

void ShardSender::Pump(uint64_t id) {
  auto entry = streams_.find(id);
  if (entry == streams_.end()) return;
  Stream& stream = entry->second;
  auto may_start = [this, &stream](SessionId session, TransferKey key) {
    return MayStart(stream, session, key);
  };
  while (auto next = stream.waiting.Take(may_start)) Start(id, next->item);
  while (auto next = stream.active.Take()) {
    auto offered = offered_.find(next->item);
    if (offered == offered_.end()) continue;  // cancelled
    // OnWritable or OnClosed follows.
    if (!SendPiece(stream, offered->second)) return stream.active.Undo(*std::move(next));
    if (offered->second.state != State::kSent) stream.active.Again(*std::move(next));
  }
}

// One that was cancelled may: Start drops it.
bool ShardSender::MayStart(const Stream& stream, SessionId session, TransferKey key) const {
  auto offered = offered_.find(key);
  if (offered == offered_.end()) return true;
  auto started = stream.started.find(session);
  if (started != stream.started.end() && started->second >= kActiveMax) return false;
  const size_t size = offered->second.stream_bytes;
  auto read = read_bytes_.find(session);
  return size == 0 || read == read_bytes_.end() || read->second + size <= options_.read_bytes_max;
}

void ShardSender::Start(uint64_t id, TransferKey key) {
  auto entry = offered_.find(key);
  if (entry == offered_.end()) return;
  Offered& offered = entry->second;
  const SessionId session = offered.offering.session;
  ++streams_.at(id).started[session];
  offered.started = true;
  const size_t size = offered.stream_bytes;
  if (size != 0) read_bytes_[session] += offered.read_bytes = size;
  offered.state = State::kAwaitingMemory;
  if (size == 0) return OnMemory(id, key, StagingMemory::Charge());
  options_.staging->Await(
      session, size, [this, id, key](absl::StatusOr<StagingMemory::Charge> charge) {
        auto shared = std::make_shared<decltype(charge)>(std::move(charge));
        options_.loop->Post([this, id, key, shared] { OnMemory(id, key, std::move(*shared)); });
      });
}

void ShardSender::OnMemory(uint64_t id, TransferKey key,
                           absl::StatusOr<StagingMemory::Charge> charge) {
  auto entry = offered_.find(key);
  // End has given everything back.
  if (entry == offered_.end() || entry->second.state != State::kAwaitingMemory) return;
  if (charge.ok()) return Read(id, key, *std::move(charge));
  FailRead(key, charge.status());
}

void ShardSender::PumpAll() {
  pump_posted_ = false;
  std::vector<uint64_t> ids;
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  for (uint64_t id : ids) Pump(id);
}

// The shard has been sent, or ended: what it took of its session's limits may go to shards that wait, on any stream.
void ShardSender::GiveBack(Offered& offered) {
  if (!std::exchange(offered.started, false)) return;
  const SessionId session = offered.offering.session;
  if (auto stream = streams_.find(offered.stream); stream != streams_.end()) {
    auto started = stream->second.started.find(session);
    if (--started->second == 0) stream->second.started.erase(started);
  }
  if (auto read = read_bytes_.find(session); read != read_bytes_.end()) {
    read->second -= std::exchange(offered.read_bytes, 0);
    if (read->second == 0) read_bytes_.erase(read);
  }
  offered.bytes.reset();
  if (!std::exchange(pump_posted_, true)) options_.loop->Post([this] { PumpAll(); });
}

void ShardSender::Read(uint64_t id, TransferKey key, StagingMemory::Charge charge) {
  Offered& offered = offered_.at(key);
  auto bytes = std::make_shared<HostShards>();
  if (!bytes->bytes.Resize(offered.stream_bytes)) {
    return FailRead(
        key, absl::ResourceExhaustedError(absl::StrCat(
                 "No host memory for the ", offered.stream_bytes, " bytes of a shard to send.")));
  }
  bytes->charge = std::move(charge);
  offered.state = State::kReading;
  ReadAll(id, key, offered, bytes);
}

// What is sent on the stream is read to one place, one shard behind the other.
void ShardSender::ReadAll(uint64_t id, TransferKey key, const Offered& offered,
                          const std::shared_ptr<HostShards>& bytes) {
  {
    MutexLock lock(bytes->mutex);
    bytes->reads_left = offered.buffers.size();
  }
  std::byte* next = bytes->bytes.data();
  for (size_t i = 0; i < offered.buffers.size(); ++i) {
    const std::shared_ptr<device::Buffer>& buffer = offered.buffers[i];
    const size_t size = offered.sizes[i];
    const auto target = offered.targets.empty() ? nullptr : offered.targets[i].memory;
    std::byte* const place = target != nullptr ? target.get() : std::exchange(next, next + size);
    const auto read = [this, id, key, bytes, target, buffer](const absl::Status& status) {
      absl::Status first_error;
      {
        MutexLock lock(bytes->mutex);
        bytes->first_error.Update(status);
        if (--bytes->reads_left != 0) return;
        first_error = bytes->first_error;
      }
      options_.loop->Post(
          [this, id, key, bytes, first_error] { OnRead(id, key, bytes, first_error); });
    };
    // The buffer is shared, so nothing donates it, and it is kept by `read`.
    if (size <= kReadHereMax && buffer->CopyToHostNow(place, size)) {
      read(absl::OkStatus());
    } else {
      buffer->CopyToHost(place, size, CountOwed(options_.callbacks, read));
    }
  }
}

void ShardSender::FailRead(TransferKey key, absl::Status why) {
  Offered& offered = offered_.at(key);
  offered.state = State::kSettled;
  offered.failure = std::move(why);
  Advance(key);
}

void ShardSender::OnRead(uint64_t id, TransferKey key, std::shared_ptr<HostShards> bytes,
                         const absl::Status& status) {
  auto stream = streams_.find(id);
  auto entry = offered_.find(key);
  const bool wanted = entry != offered_.end() && entry->second.state == State::kReading;
  if (!wanted) return;  // End has given everything back
  if (!status.ok() || stream == streams_.end())
    return FailRead(key, status.ok() ? absl::UnavailableError("its stream closed") : status);
  Offered& offered = entry->second;
  offered.bytes = std::move(bytes);
  Queue(offered);
  offered.buffers.clear();
  offered.state = State::kSending;
  offered.progress.Await(Clock::now());
  stream->second.active.Push(offered.offering.session, transport::ShardSize::kLarge, key);
  Pump(id);
}

void ShardSender::Queue(Offered& offered) {
  size_t placed_bytes = 0, placed = 0;
  for (const Target& target : offered.targets) {
    placed_bytes += target.size;
    placed += target.memory != nullptr ? 1 : 0;
  }
  if (placed != 0) offered.outgoing.push_back(transport::OutgoingShard::Placed(placed_bytes));
  if (placed != offered.sizes.size()) offered.outgoing.emplace_back(offered.bytes->bytes.span());
}

// False: the link takes no more frames for now.
bool ShardSender::SendPiece(Stream& stream, Offered& offered) {
  transport::OutgoingShard& outgoing = offered.outgoing.front();
  const transport::OutgoingShard::Step step = outgoing.Next(stream.piece_bytes_max);
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_transfer(offered.offering.key.ordinal.number());
  bulk.mutable_name()->set_shard(offered.offering.key.shard);
  transport::PutStep(outgoing, step, bulk, offered.offering.token.proof);
  if (!stream.link->Send(std::move(frame)).ok()) return false;
  outgoing.Advance(step);
  offered.progress.Hear(Clock::now());
  sent_bytes_ += step.piece.size;
  if (step.way == transport::OutgoingShard::Way::kPlaced) sent_shared_bytes_ += step.piece.size;
  if (outgoing.done()) offered.outgoing.pop_front();
  if (!offered.outgoing.empty()) return true;
  offered.state = State::kSent;
  offered.targets.clear();
  GiveBack(offered);
  return true;
}

void ShardSender::OnWritable(uint64_t id) { Pump(id); }

void ShardSender::OnClosed(uint64_t id) {
  auto entry = streams_.find(id);
  if (entry == streams_.end()) return;
  const std::string peer = entry->second.peer;
  streams_.erase(entry);
  std::erase_if(parked_, [id](const auto& parked) { return parked.first.second == id; });
  std::vector<TransferKey> lost;
  for (const auto& [key, offered] : offered_) {
    if (offered.stream == id) lost.push_back(key);
  }
  for (TransferKey key : lost) {
    wire::Failure failure =
        wire::MakeFailure(absl::StatusCode::kDataLoss,
                          absl::StrCat("the data stream to ", peer,
                                       " closed before it took all of shard ", key.shard),
                          "Copy the array again once the worker is back.");
    failure.set_worker(peer);
    failure.set_gang(key.ordinal.number());
    failure.set_shard(key.shard);
    End(key, wire::ToStatus(failure));
  }
}

bool ShardSender::Cancel(TransferKey key, const absl::Status& why) {
  if (!offered_.contains(key)) return false;
  End(key, why);
  return true;
}

void ShardSender::End(TransferKey key, const absl::Status& status) {
  auto entry = offered_.extract(key);
  if (entry.empty()) return;
  Offered& offered = entry.mapped();
  GiveBack(offered);
  offered.offering.taken(status);
}

void ShardSender::Refuse(uint64_t id, const absl::Status& why) {
  auto stream = streams_.find(id);
  if (stream == streams_.end()) return;
  stream->second.link->Refuse(why);
  OnClosed(id);
  options_.on_refused(id);
}

void ShardSender::Close(const absl::Status& why) {
  for (auto& [id, stream] : streams_) stream.link->Close(why);
  streams_.clear();
  parked_.clear();
  while (!offered_.empty()) End(offered_.begin()->first, why);
}

// Checks deadlines while a receiver waits for a shard; otherwise no timer runs.
void ShardSender::WatchDeadlines() {
  const Clock::time_point now = Clock::now();
  const Clock::duration stood_still = looks_.StoodStill(now, kWatchInterval);
  std::vector<std::pair<TransferKey, absl::Status>> late;
  watching_ = false;
  for (auto& [id, stream] : streams_) stream.link->Skip(stood_still, now);
  for (auto& [key, offered] : offered_) {
    if (offered.stream == 0) continue;
    watching_ = true;
    offered.progress.Skip(stood_still, now);
    if (auto why = Late(offered, now)) late.emplace_back(key, *std::move(why));
  }
  for (const auto& [key, why] : late) {
    auto offered = offered_.find(key);
    if (offered == offered_.end()) continue;
    uint64_t stream = offered->second.stream;
    End(key, why);
    Refuse(stream, why);  // it is stalled: its other shards would wait as long
  }
  if (watching_) options_.loop->PostAt(now + kWatchInterval, [this] { WatchDeadlines(); });
}

std::optional<absl::Status> ShardSender::Late(Offered& offered, Clock::time_point now) {
  Stream& stream = streams_.at(offered.stream);
  std::string what;
  if (stream.link->IsSilent(now, options_.silence_max)) {
    what = absl::StrCat("was silent for ", options_.silence_max.count(), " ms");
  } else if (offered.progress.IsTooLong(now, options_.wait_max)) {
    what = absl::StrCat("took no bytes for ", options_.wait_max.count(), " ms");
  } else {
    return std::nullopt;
  }
  wire::Failure failure =
      wire::MakeFailure(absl::StatusCode::kDeadlineExceeded,
                        absl::StrCat(stream.peer, ", to which shard ", offered.offering.key.shard,
                                     " of a copy goes, ", what),
                        "See `gangway status`; copy the array again.");
  failure.set_worker(stream.peer);
  failure.set_gang(offered.offering.key.ordinal.number());
  failure.set_shard(offered.offering.key.shard);
  return wire::ToStatus(failure);
}

}  // namespace gangway::worker
