// Implementation of client_fetches.h.
#include "gangway/worker/service/transfer/client_fetches.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/trace.h"
#include "gangway/transport/bulk/messages.h"

namespace gangway::worker {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kTurnBytes = 4 * kPieceBytes;   // of a session, before the loop does other work
constexpr size_t kFrameBytes = size_t{4} << 10;  // what a frame costs beside its bytes
constexpr size_t kInterleaved = 4;               // large shards of a session that take turns
// Fetched shards stay in shared memory as long as a client reads them there, perhaps for good. Beyond these parts of
// the staging memory they come on the stream, so that readers leave room for what is only on its way.
constexpr size_t kFetchedPart = 2;         // of all sessions
constexpr size_t kSessionFetchedPart = 4;  // of one
constexpr size_t kSessionPart = 2;         // of one, of the shared memory

size_t Part(const ClientFetches::Options& options, size_t part) {
  return options.staging->bytes_max() / part;
}

}  // namespace

ClientFetches::ClientFetches(Options options)
    : options_(std::move(options)),
      share_(std::make_shared<FetchShare>(Part(options_, kFetchedPart))) {}

ClientFetches::Session::Session(std::shared_ptr<FetchShare> share)
    : outgoing(kInterleaved), share(std::move(share)) {}

ClientFetches::Session& ClientFetches::SessionOf(SessionId session) {
  if (auto known = sessions_.find(session); known != sessions_.end()) return known->second;
  const size_t most =
      std::min(options_.shared_bytes_max / kSessionPart, Part(options_, kSessionFetchedPart));
  return sessions_.try_emplace(session, std::make_shared<FetchShare>(most, share_)).first->second;
}

void ClientFetches::Attach(ClientStream& stream) {
  SessionOf(stream.session()).open.emplace(stream);
  Pump(stream.session());
}

void ClientFetches::Detach(SessionId session) {
  if (auto entry = sessions_.find(session); entry != sessions_.end()) entry->second.open.reset();
}

FetchedShard::Source ClientFetches::MemoryFor(SessionId session) {
  auto entry = sessions_.find(session);
  const bool shared = entry != sessions_.end() && entry->second.open &&
                      entry->second.open->stream->segments().IsConnected();
  if (!shared) return {.staging = options_.staging, .session = session};
  return {options_.pool, entry->second.share, options_.staging, session};
}

void ClientFetches::Send(SessionId session, FetchId fetch, uint32_t shard,
                         std::shared_ptr<FetchedShard> bytes, Sent sent) {
  transport::OutgoingShard data(bytes->bytes());
  if (bytes->block() != nullptr) data.Lend({bytes, bytes->block()});
  Enqueue(session, {.fetch = fetch,
                    .shard = shard,
                    .data = std::move(data),
                    .owner = std::move(bytes),
                    .sent = std::move(sent)});
}

void ClientFetches::SendFailures(const FailFetch& fail) {
  for (uint32_t shard : fail.shards) {
    Enqueue(fail.session, {.fetch = fail.fetch,
                           .shard = shard,
                           .data = transport::OutgoingShard::Failed(fail.failure),
                           .sent = [](const absl::Status&) {}});
  }
}

void ClientFetches::Enqueue(SessionId session_id, Outgoing outgoing) {
  Session& session = SessionOf(session_id);
  const transport::ShardSize size = SizeOf(outgoing);
  session.outgoing.Push(session_id, size, std::move(outgoing));
  if (!session.open) return AwaitStream(session_id);
  Pump(session_id);
}

void ClientFetches::AwaitStream(SessionId session_id) {
  Session& session = SessionOf(session_id);
  if (session.outgoing.size() > 1) return;  // it waits already
  const uint64_t wait = ++session.waits;
  options_.loop->PostAt(Clock::now() + options_.stream_wait_max, [this, session_id, wait] {
    auto entry = sessions_.find(session_id);
    if (entry == sessions_.end() || entry->second.waits != wait || entry->second.open) return;
    FailAll(entry->second, absl::UnavailableError(
                               absl::StrCat("The client has had no data stream to this worker for ",
                                            options_.stream_wait_max / std::chrono::seconds(1),
                                            " s. Retry: its arrays are not lost.")));
  });
}

void ClientFetches::FailAll(Session& session, const absl::Status& why) {
  ++session.waits;
  // `sent` may re-enter this function: its queue is empty by then.
  for (Outgoing& outgoing : session.outgoing.TakeAll()) outgoing.sent(why);
}

void ClientFetches::Fail(SessionId session, const absl::Status& why) {
  if (auto entry = sessions_.find(session); entry != sessions_.end()) FailAll(entry->second, why);
}

void ClientFetches::EndSession(SessionId session, const absl::Status& why) {
  Fail(session, why);
  sessions_.erase(session);
}

void ClientFetches::Pump(SessionId session_id) {
  auto entry = sessions_.find(session_id);
  if (entry == sessions_.end() || !entry->second.open) return;
  Session& session = entry->second;
  for (size_t turn = 0; !session.outgoing.empty();) {
    if (turn >= kTurnBytes) return PumpLater(session_id);
    auto next = session.outgoing.Take();
    Outgoing& outgoing = next->item;
    const std::optional<size_t> sent = SendPiece(*session.open, outgoing);
    if (!sent) return session.outgoing.Undo(*std::move(next));
    turn += *sent + kFrameBytes;
    if (!outgoing.data.done()) {
      session.outgoing.Again(*std::move(next));
    } else {
      outgoing.sent(absl::OkStatus());
    }
  }
}

void ClientFetches::PumpLater(SessionId session_id) {
  if (std::exchange(SessionOf(session_id).pump_posted, true)) return;
  options_.loop->Post([this, session_id] {
    auto again = sessions_.find(session_id);
    if (again != sessions_.end()) again->second.pump_posted = false;
    Pump(session_id);
  });
}

// A small shard takes one frame.
transport::ShardSize ClientFetches::SizeOf(const Outgoing& outgoing) {
  const bool small = outgoing.data.size() <= kPieceBytes || outgoing.data.block() != nullptr;
  return small ? transport::ShardSize::kSmall : transport::ShardSize::kLarge;
}

std::optional<size_t> ClientFetches::SendPiece(Open& open, Outgoing& outgoing) {
  transport::OutgoingShard& data = outgoing.data;
  ClientStream& stream = *open.stream;
  if (data.block() != nullptr && !stream.segments().HandOver(*data.block())) data.Lend(nullptr);
  const transport::OutgoingShard::Step step = data.Next(kPieceBytes);
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_session(stream.session().number());
  bulk.mutable_name()->set_fetch(outgoing.fetch.number());
  bulk.mutable_name()->set_shard(outgoing.shard);
  transport::PutStep(data, step, bulk);
  if (!stream.Send(std::move(frame))) return std::nullopt;  // Pump follows, or Detach
  data.Advance(step);
  sent_bytes_ += step.piece.size;
  if (step.way == transport::OutgoingShard::Way::kLent) {
    sent_shared_bytes_ += step.piece.size;
    open.lent.Lend({outgoing.fetch, outgoing.shard}, data.block());
  }
  if (data.done()) Trace(TraceKind::kFetch, outgoing.shard, stream.session(), {}, data.size());
  return step.bytes.size();
}

// The client has read a shard in shared memory, or could not map it.
void ClientFetches::OnBulk(ClientStream& stream, const wire::Bulk& bulk) {
  if (!bulk.has_received() && !bulk.has_resend()) return;
  const FetchId fetch(bulk.name().fetch());
  auto entry = sessions_.find(stream.session());
  if (entry == sessions_.end() || !entry->second.open) return;
  std::shared_ptr<transport::SharedBlock> block =
      entry->second.open->lent.TakeBack({fetch, bulk.name().shard()});
  if (block == nullptr || bulk.has_received()) return;
  const std::span<const std::byte> bytes = block->bytes();
  sent_bytes_ -= bytes.size();
  sent_shared_bytes_ -= bytes.size();
  Enqueue(stream.session(), {.fetch = fetch,
                             .shard = bulk.name().shard(),
                             .data = transport::OutgoingShard(bytes),
                             .owner = std::move(block),
                             .sent = [](const absl::Status&) {}});
}

}  // namespace gangway::worker
