// Implementation of data_streams.h.
#include "gangway/worker/service/transfer/data_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/trace.h"
#include "gangway/transport/bulk/messages.h"
#include "gangway/transport/handshake/data_token.h"
#include "gangway/transport/handshake/handshake.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kTurnBytes = 4 * kPieceBytes;   // of a session, before the loop does other work
constexpr size_t kFrameBytes = size_t{4} << 10;  // what a frame costs beside its bytes
constexpr size_t kInterleaved = 4;               // large shards of a session that take turns
constexpr std::chrono::seconds kHelloLimit{10};
constexpr std::chrono::seconds kIdleMemoryMax{10};
// Fetched shards stay in shared memory as long as a client reads them there, perhaps for good. Beyond these parts of
// the staging memory they come on the stream, so that readers leave room for what is only on its way.
constexpr size_t kFetchedPart = 2;         // of all sessions
constexpr size_t kSessionFetchedPart = 4;  // of one
constexpr size_t kSessionPart = 2;         // of one, of the shared memory
constexpr size_t kEarlyFramesMax = 64;     // per stream; a correct client sends a Hello and waits
constexpr size_t kAnswersMax = 4096;       // per stream, that its link has not taken
constexpr std::chrono::seconds kStreamWaitMax{5};  // of a fetched shard, for its client's stream

size_t Part(const DataStreams::Options& options, size_t part) {
  return options.staging == nullptr ? SIZE_MAX : options.staging->bytes_max() / part;
}

}  // namespace

DataStreams::DataStreams(const Options& options, Events events)
    : options_(options),
      loop_(options.loop),
      events_(std::move(events)),
      pool_({.bytes_max = options.shared_bytes_max,
             .writable = true,
             .idle_max = kIdleMemoryMax,
             .drop_later =
                 [this] {
                   loop_->PostAt(Clock::now() + kIdleMemoryMax, [this] { DropIdleMemory(); });
                 },
             .pin = options.pin}),
      fetched_(std::make_shared<FetchShare>(Part(options, kFetchedPart))) {
  if (options.shared_bytes_max == 0) return;
  auto listener = transport::DescriptorListener::Open();
  if (listener.ok()) listener_ = *std::move(listener);
}

DataStreams::Session::Session(std::shared_ptr<StagingMemory> memory, SessionId id,
                              std::shared_ptr<FetchShare> fetched)
    : staging(std::move(memory), id), outgoing(kInterleaved), share(std::move(fetched)) {}

transport::LinkEvents DataStreams::Accept(std::shared_ptr<transport::Link> link) {
  uint64_t id = next_id_.fetch_add(1);
  // The link's events arrive on the same loop, after this task.
  loop_->Post([this, id, link = std::move(link)] {
    Stream& accepted = streams_[id];
    accepted.id = id;
    accepted.accepted = link;
    accepted.link = std::make_shared<transport::BulkLink>(
        link, transport::FrameSender::Stamp{.incarnation = options_.incarnation});
    loop_->PostAt(Clock::now() + kHelloLimit, [this, id] {
      auto stream = streams_.find(id);
      if (stream != streams_.end() && stream->second.session == SessionId() &&
          stream->second.owner == nullptr)
        Refuse(id, absl::DeadlineExceededError("No Hello arrived within 10 s."));
    });
  });
  return {.executor = loop_,
          .on_frame = [this, id](wire::Frame frame) { OnFrame(id, std::move(frame)); },
          .on_writable = [this, id] { OnWritable(id); },
          .on_closed = [this, id](const absl::Status&) { OnClosed(id); }};
}

void DataStreams::SetKey(std::string key) {
  key_ = std::move(key);
  std::vector<std::pair<uint64_t, std::vector<wire::Frame>>> early;
  for (auto& [id, stream] : streams_) early.emplace_back(id, std::exchange(stream.early, {}));
  for (auto& [id, frames] : early) {
    for (wire::Frame& frame : frames) OnFrame(id, std::move(frame));
  }
}

void DataStreams::Admit(SessionId session) {
  if (!isolated_ || ended_.Contains(session) || !admitted_.insert(session).second) return;
  std::vector<std::pair<uint64_t, std::vector<wire::Frame>>> early;
  for (auto& [id, stream] : streams_) {
    if (stream.awaits != session) continue;
    stream.awaits = {};
    early.emplace_back(id, std::exchange(stream.early, {}));
  }
  for (auto& [id, frames] : early) {
    for (wire::Frame& frame : frames) OnFrame(id, std::move(frame));
  }
}

void DataStreams::OnWritable(uint64_t id) {
  auto stream = streams_.find(id);
  if (stream == streams_.end()) return;
  if (stream->second.owner != nullptr) return stream->second.owner->OnPeerWritable(id);
  for (wire::Frame& frame : std::exchange(stream->second.answers, {}))
    Answer(stream->second, std::move(frame));
  if (stream->second.session != SessionId()) Pump(stream->second.session);
}

void DataStreams::OnFrame(uint64_t id, wire::Frame frame) {
  auto entry = streams_.find(id);
  if (entry == streams_.end()) return;  // already rejected
  Stream& stream = entry->second;
  if (stream.awaits != SessionId()) {
    return Refuse(id, absl::FailedPreconditionError(absl::StrCat(
                          "Session ", stream.awaits, " is not admitted to this worker yet.")));
  }
  if (key_.empty()) {
    if (stream.early.size() < kEarlyFramesMax) return stream.early.push_back(std::move(frame));
    return Refuse(id,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "More than ", kEarlyFramesMax, " frames came before the worker was ready.")));
  }
  if (stream.owner != nullptr) return stream.owner->OnPeerFrame(id, std::move(frame));
  if (stream.session == SessionId()) {
    if (!frame.has_hello())
      return Refuse(id, absl::InvalidArgumentError("The first frame must be a Hello."));
    return OnHello(id, stream, std::move(frame));
  }
  if (stream.answers.size() >= kAnswersMax) {
    return Refuse(id, absl::ResourceExhaustedError(absl::StrCat("The client does not read the ",
                                                                kAnswersMax, " answers to it.")));
  }
  if (frame.has_bulk()) return OnBulk(id, stream, frame.bulk());
  if (frame.has_piece() || frame.has_host_callback_reply())
    return OnReply(id, stream, std::move(frame));
  if (frame.has_heartbeat()) return Answer(stream, transport::BulkLink::ReplyTo(frame));
}

void DataStreams::OnHello(uint64_t id, Stream& stream, wire::Frame frame) {
  const wire::Hello& hello = frame.hello();
  if (absl::Status same = transport::CheckVersions(hello); !same.ok()) return Refuse(id, same);
  if (absl::Status own = transport::CheckCertificate(stream.accepted->peer(), hello); !own.ok())
    return Refuse(id, own);
  if (options_.peers.contains(hello.role())) return OnPeerHello(id, stream, hello);
  if (hello.role() != wire::ROLE_DATA || hello.session() == 0) {
    return Refuse(id, absl::InvalidArgumentError(
                          "This address accepts only data streams that name their session."));
  }
  const SessionId session_id(hello.session());
  if (!transport::IsDataToken(key_, session_id, hello.token())) {
    return Refuse(id, absl::PermissionDeniedError(absl::StrCat(
                          "The token does not match session ", session_id,
                          "; open data streams with the data token of this session's welcome.")));
  }
  if (ended_.Contains(session_id)) {
    return Refuse(
        id, absl::FailedPreconditionError(absl::StrCat("Session ", session_id, " has ended.")));
  }
  stream.accepted->Admit();
  if (isolated_ &&
      !admitted_.contains(session_id)) {  // the session's client may know before this worker
    stream.awaits = session_id;
    stream.early.push_back(std::move(frame));
    return;
  }
  stream.session = session_id;
  stream.client = hello.name();
  Session& session = SessionOf(stream.session);
  if (auto old = streams_.find(std::exchange(session.stream, id)); old != streams_.end()) {
    const uint64_t replaced = old->first;
    const auto link = old->second.link;
    link->Close(absl::CancelledError("The session opened another data stream."));
    OnClosed(replaced);
  }
  wire::HelloReply answer;
  answer.set_session(stream.session.number());
  stream.segments.Listen(listener_.get(), answer);
  stream.link->Answer(std::move(answer));
  SendCallbacks(stream.session);
  Pump(stream.session);
}

// A worker proves that it knows the cluster's key; what it may then read, the owner of the stream decides.
void DataStreams::OnPeerHello(uint64_t id, Stream& stream, const wire::Hello& hello) {
  if (!transport::IsDataToken(key_, kPeerSession, hello.token())) {
    return Refuse(id, absl::PermissionDeniedError(
                          "The token is not one of this cluster's workers; only they may open "
                          "streams to one another."));
  }
  stream.accepted->Admit();
  stream.owner = options_.peers.at(hello.role());
  stream.owner->AcceptPeer(id, stream.accepted, hello);
}

// Of uploads and fetches only: a client may name nothing else.
void DataStreams::OnBulk(uint64_t id, Stream& stream, const wire::Bulk& bulk) {
  const wire::ShardName& name = bulk.name();
  if (name.has_upload()) {
    if (bulk.has_bytes()) return OnBytes(id, stream, name, bulk.bytes());
    if (bulk.has_placed()) return OnPlaced(id, stream, name);
    if (bulk.has_place_request()) return OnPlaceRequest(stream, name, bulk.place_request().size());
    if (bulk.has_dropped()) return OnDropped(stream, UploadId(name.upload()));
  } else if (name.has_fetch()) {
    if (bulk.has_received()) return OnDone(stream, name, Done::kReceived);
    if (bulk.has_resend()) return OnDone(stream, name, Done::kUnread);
  }
}

void DataStreams::OnBytes(uint64_t id, Stream& stream, const wire::ShardName& name,
                          const wire::ShardBytes& bytes) {
  received_bytes_ += bytes.data().size();
  UploadStaging& staging = SessionOf(stream.session).staging;
  absl::StatusOr<bool> complete = staging.Add(UploadId(name.upload()), name.shard(), bytes);
  if (absl::IsResourceExhausted(complete.status())) {
    staging.Refuse(UploadId(name.upload()));
    return events_.on_refused(
        {stream.session, UploadId(name.upload()), wire::ToFailure(complete.status()), false});
  }
  if (!complete.ok()) return Refuse(id, complete.status());
  if (*complete) OnStaged(stream, name);
}

// No node will use it: the controller has refused it, or its client has given it up.
void DataStreams::OnDropped(const Stream& stream, UploadId upload) {
  SessionOf(stream.session).staging.Refuse(upload);
  events_.on_refused(
      {stream.session, upload,
       wire::MakeFailure(absl::StatusCode::kCancelled, "The client gave this upload up."),
       /*unwanted=*/true});
}

void DataStreams::OnPlaced(uint64_t id, Stream& stream, const wire::ShardName& name) {
  UploadStaging& staging = SessionOf(stream.session).staging;
  absl::StatusOr<bool> complete = staging.Place(UploadId(name.upload()), name.shard());
  if (!complete.ok()) return Refuse(id, complete.status());
  received_bytes_ += staging.SizeOf(UploadId(name.upload()), name.shard());
  received_shared_bytes_ += staging.SizeOf(UploadId(name.upload()), name.shard());
  if (*complete) OnStaged(stream, name);
}

void DataStreams::OnStaged(const Stream& stream, const wire::ShardName& name) {
  const size_t bytes =
      SessionOf(stream.session).staging.SizeOf(UploadId(name.upload()), name.shard());
  Trace(TraceKind::kUpload, name.shard(), stream.session, {}, bytes);
  events_.on_staged({.session = stream.session,
                     .upload = UploadId(name.upload()),
                     .shard = name.shard(),
                     .bytes = bytes});
}

// Answers without a place if no block is available; the shard then arrives in pieces.
void DataStreams::OnPlaceRequest(Stream& stream, const wire::ShardName& name, size_t size) {
  wire::Frame frame;
  *frame.mutable_bulk()->mutable_name() = name;
  wire::PlaceAnswer& answer = *frame.mutable_bulk()->mutable_place_answer();
  if (auto block = pool_.Allocate(stream.segments, size)) {
    const wire::SharedBlock place = transport::NameOf(*block, size);
    if (SessionOf(stream.session)
            .staging.Reserve(UploadId(name.upload()), name.shard(), std::move(block)))
      *answer.mutable_place() = place;
  }
  Answer(stream, std::move(frame));
}

FetchedShard::Source DataStreams::MemoryFor(SessionId session) {
  auto entry = sessions_.find(session);
  const bool shared = entry != sessions_.end() && entry->second.stream != 0 &&
                      streams_.at(entry->second.stream).segments.IsConnected();
  if (!shared) return {.staging = options_.staging, .session = session};
  return {pool_.shared(), entry->second.share, options_.staging, session};
}

void DataStreams::OnReply(uint64_t id, Stream& stream, wire::Frame frame) {
  if (!stream.called)
    return Refuse(id, absl::InvalidArgumentError("A reply came without a host callback."));
  auto whole = stream.joiner.Join(std::move(frame));
  if (!whole.ok()) return Refuse(id, whole.status());
  if (*whole) events_.on_reply(stream.session, std::move(*(*whole)->mutable_host_callback_reply()));
}

void DataStreams::SendCallback(SessionId session_id, wire::HostCallback callback) {
  if (ended_.Contains(session_id))
    return LoseCallbacks(session_id, absl::CancelledError("The session ended."));
  Session& session = SessionOf(session_id);
  wire::Frame frame;
  *frame.mutable_host_callback() = std::move(callback);
  for (wire::Frame& part : transport::CutPieces(std::move(frame)))
    session.callbacks.push_back(std::move(part));
  if (session.stream != 0) return SendCallbacks(session_id);
  loop_->PostAt(Clock::now() + kStreamWaitMax, [this, session_id, wait = ++session.callback_waits] {
    auto entry = sessions_.find(session_id);
    if (entry == sessions_.end() || entry->second.callback_waits != wait ||
        entry->second.stream != 0)
      return;
    LoseCallbacks(session_id, absl::UnavailableError(absl::StrCat(
                                  "The client has had no data stream to this worker for ",
                                  kStreamWaitMax.count(), " s, and a host callback needs one.")));
  });
}

void DataStreams::SendCallbacks(SessionId session_id) {
  Session& session = SessionOf(session_id);
  Stream& stream = streams_.at(session.stream);
  stream.called |= !session.callbacks.empty();
  for (wire::Frame& frame : std::exchange(session.callbacks, {})) Answer(stream, std::move(frame));
}

void DataStreams::LoseCallbacks(SessionId session_id, const absl::Status& why) {
  if (auto entry = sessions_.find(session_id); entry != sessions_.end())
    entry->second.callbacks.clear();
  if (events_.on_callbacks_lost) events_.on_callbacks_lost(session_id, why);
}

std::string DataStreams::ClientOf(SessionId session) const {
  auto entry = sessions_.find(session);
  if (entry == sessions_.end() || entry->second.stream == 0) return "";
  return streams_.at(entry->second.stream).client;
}

// Sends in order; frames that the link does not take wait until it is writable.
void DataStreams::Answer(Stream& stream, wire::Frame frame) {
  if (!stream.answers.empty() || !stream.link->Send(frame).ok())
    stream.answers.push_back(std::move(frame));
}

void DataStreams::DropIdleMemory() {
  const std::vector<uint64_t> dropped = pool_.DropIdle(Clock::now());
  for (auto& [id, stream] : streams_) {
    const std::vector<uint64_t> gone = stream.segments.TakeGone(dropped);
    if (gone.empty()) continue;
    wire::Frame frame;
    frame.mutable_bulk()->mutable_gone()->mutable_segments()->Add(gone.begin(), gone.end());
    Answer(stream, std::move(frame));
  }
}

void DataStreams::OnClosed(uint64_t id) {
  auto entry = streams_.find(id);
  if (entry == streams_.end()) return;
  SessionId session_id = entry->second.session;
  if (entry->second.owner != nullptr) entry->second.owner->OnPeerClosed(id);
  streams_.erase(entry);  // which retires what was lent on it
  auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return;
  if (session->second.stream == id) session->second.stream = 0;
  LoseCallbacks(session_id,
                absl::UnavailableError("The client's data stream closed before it answered a host "
                                       "callback: its process has ended, or the network is cut."));
  FailOutgoing(session->second,
               absl::UnavailableError("The client's data stream closed before it had all bytes."));
}

void DataStreams::Refuse(uint64_t id, const absl::Status& why) {
  streams_.at(id).link->Refuse(why);
  OnClosed(id);
}

DataStreams::Session& DataStreams::SessionOf(SessionId session) {
  if (auto known = sessions_.find(session); known != sessions_.end()) return known->second;
  const size_t most =
      std::min(options_.shared_bytes_max / kSessionPart, Part(options_, kSessionFetchedPart));
  return sessions_
      .try_emplace(session, options_.staging, session, std::make_shared<FetchShare>(most, fetched_))
      .first->second;
}

void DataStreams::SendShard(SessionId session, FetchId fetch, uint32_t shard,
                            std::shared_ptr<FetchedShard> bytes, Sent sent) {
  transport::OutgoingShard data(bytes->bytes());
  if (bytes->block() != nullptr) data.Lend({bytes, bytes->block()});
  Enqueue(session, {.fetch = fetch,
                    .shard = shard,
                    .data = std::move(data),
                    .owner = std::move(bytes),
                    .sent = std::move(sent)});
}

void DataStreams::FailShards(const FailFetch& fail) {
  for (uint32_t shard : fail.shards) {
    Enqueue(fail.session, {.fetch = fail.fetch,
                           .shard = shard,
                           .data = transport::OutgoingShard::Failed(fail.failure),
                           .sent = [](const absl::Status&) {}});
  }
}

void DataStreams::Enqueue(SessionId session_id, Outgoing outgoing) {
  if (ended_.Contains(session_id)) return outgoing.sent(absl::CancelledError("The session ended."));
  Session& session = SessionOf(session_id);
  const transport::ShardSize size = SizeOf(outgoing);
  session.outgoing.Push(session_id, size, std::move(outgoing));
  if (session.stream == 0) return AwaitStream(session_id);
  Pump(session_id);
}

void DataStreams::AwaitStream(SessionId session_id) {
  Session& session = SessionOf(session_id);
  if (session.outgoing.size() > 1) return;  // it waits already
  loop_->PostAt(Clock::now() + kStreamWaitMax, [this, session_id, wait = ++session.waits] {
    auto entry = sessions_.find(session_id);
    if (entry == sessions_.end() || entry->second.waits != wait || entry->second.stream != 0)
      return;
    FailOutgoing(entry->second,
                 absl::UnavailableError(
                     absl::StrCat("The client has had no data stream to this worker for ",
                                  kStreamWaitMax.count(), " s. Retry: its arrays are not lost.")));
  });
}

void DataStreams::FailOutgoing(Session& session, const absl::Status& why) {
  ++session.waits;
  // `sent` may re-enter this function: its queue is empty by then.
  for (Outgoing& outgoing : session.outgoing.TakeAll()) outgoing.sent(why);
}

void DataStreams::Pump(SessionId session_id) {
  auto entry = sessions_.find(session_id);
  if (entry == sessions_.end() || entry->second.stream == 0) return;
  Session& session = entry->second;
  Stream& stream = streams_.at(session.stream);
  for (size_t turn = 0; !session.outgoing.empty();) {
    if (turn >= kTurnBytes) {
      if (std::exchange(session.pump_posted, true)) return;
      return loop_->Post([this, session_id] {
        auto again = sessions_.find(session_id);
        if (again != sessions_.end()) again->second.pump_posted = false;
        Pump(session_id);
      });
    }
    auto next = session.outgoing.Take();
    Outgoing& outgoing = next->item;
    const std::optional<size_t> sent = SendPiece(stream, session_id, outgoing);
    if (!sent) return session.outgoing.Undo(*std::move(next));
    turn += *sent + kFrameBytes;
    if (!outgoing.data.done()) {
      session.outgoing.Again(*std::move(next));
    } else {
      outgoing.sent(absl::OkStatus());
    }
  }
}

// It takes one frame.
transport::ShardSize DataStreams::SizeOf(const Outgoing& outgoing) {
  const bool small = outgoing.data.size() <= kPieceBytes || outgoing.data.block() != nullptr;
  return small ? transport::ShardSize::kSmall : transport::ShardSize::kLarge;
}

std::optional<size_t> DataStreams::SendPiece(Stream& stream, SessionId session,
                                             Outgoing& outgoing) {
  transport::OutgoingShard& data = outgoing.data;
  if (data.block() != nullptr && !stream.segments.HandOver(*data.block())) data.Lend(nullptr);
  const transport::OutgoingShard::Step step = data.Next(kPieceBytes);
  wire::Frame frame;
  wire::Bulk& bulk = *frame.mutable_bulk();
  bulk.mutable_name()->set_session(session.number());
  bulk.mutable_name()->set_fetch(outgoing.fetch.number());
  bulk.mutable_name()->set_shard(outgoing.shard);
  transport::PutStep(data, step, bulk);
  // Full: on_writable follows. Closed: on_closed follows and drops it.
  if (!stream.link->Send(std::move(frame)).ok()) return std::nullopt;
  data.Advance(step);
  sent_bytes_ += step.piece.size;
  if (step.way == transport::OutgoingShard::Way::kLent) {
    sent_shared_bytes_ += step.piece.size;
    stream.lent.Lend({outgoing.fetch, outgoing.shard}, data.block());
  }
  if (data.done()) Trace(TraceKind::kFetch, outgoing.shard, session, {}, data.size());
  return step.bytes.size();
}

// The client has read a shard in shared memory, or could not map it.
void DataStreams::OnDone(Stream& stream, const wire::ShardName& name, Done done) {
  std::shared_ptr<transport::SharedBlock> block =
      stream.lent.TakeBack({FetchId(name.fetch()), name.shard()});
  if (block == nullptr || done == Done::kReceived) return;
  const std::span<const std::byte> bytes = block->bytes();
  sent_bytes_ -= bytes.size();
  sent_shared_bytes_ -= bytes.size();
  Enqueue(stream.session, {.fetch = FetchId(name.fetch()),
                           .shard = name.shard(),
                           .data = transport::OutgoingShard(bytes),
                           .owner = std::move(block),
                           .sent = [](const absl::Status&) {}});
}

UploadStaging::Shards DataStreams::TakeUpload(SessionId session, UploadId upload) {
  auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return {};
  return entry->second.staging.Take(upload);
}

void DataStreams::RefuseUpload(SessionId session, UploadId upload) {
  if (!ended_.Contains(session)) SessionOf(session).staging.Refuse(upload);
}

size_t DataStreams::upload_count() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.staging.upload_count();
  return count;
}

std::vector<UploadsMoved> DataStreams::TakeMoved() {
  std::vector<UploadsMoved> moved;
  for (auto& [id, session] : sessions_) {
    std::vector<UploadId> uploads = session.staging.TakeMoved();
    if (!uploads.empty()) moved.push_back({id, std::move(uploads)});
  }
  return moved;
}

void DataStreams::EndSession(SessionId session_id) {
  ended_.Insert(session_id);
  admitted_.erase(session_id);
  options_.staging->EndSession(session_id);
  auto entry = sessions_.find(session_id);
  if (entry == sessions_.end()) return;
  if (auto stream = streams_.find(entry->second.stream); stream != streams_.end()) {
    stream->second.link->Close(absl::CancelledError("The session has ended."));
    streams_.erase(stream);
  }
  FailOutgoing(entry->second, absl::CancelledError("The session ended."));
  LoseCallbacks(session_id, absl::CancelledError("The session ended."));
  sessions_.erase(session_id);
}

void DataStreams::CloseAll() {
  for (auto& [id, stream] : streams_)
    stream.accepted->Close(absl::UnavailableError("The worker is shutting down."));
  streams_.clear();
  sessions_.clear();
}

}  // namespace gangway::worker
