// Implementation of data_streams.h.
#include "gangway/worker/service/transfer/data_streams.h"

#include <chrono>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/transport/handshake/handshake.h"

namespace gangway::worker {
namespace {

constexpr std::chrono::seconds kHelloLimit{10};
constexpr std::chrono::seconds kIdleMemoryMax{10};
constexpr size_t kEarlyFramesMax = 64;  // per stream; a correct client sends a Hello and waits

}  // namespace

DataStreams::DataStreams(const Options& options, const Events& events)
    : options_(options),
      loop_(options.loop),
      pool_({.bytes_max = options.shared_bytes_max,
             .writable = true,
             .idle_max = kIdleMemoryMax,
             .drop_later =
                 [this] {
                   loop_->PostAt(Clock::now() + kIdleMemoryMax, [this] { DropIdleMemory(); });
                 },
             .pin = options.pin}),
      uploads_(options.staging, &pool_,
               {.on_staged = events.on_staged, .on_refused = events.on_refused}),
      fetches_({.loop = loop_,
                .staging = options.staging,
                .pool = pool_.shared(),
                .shared_bytes_max = options.shared_bytes_max}),
      callbacks_(loop_, {.on_reply = events.on_reply, .on_lost = events.on_callbacks_lost}) {
  if (options.shared_bytes_max == 0) return;
  auto listener = transport::DescriptorListener::Open();
  if (listener.ok()) listener_ = *std::move(listener);
}

transport::LinkEvents DataStreams::Accept(std::shared_ptr<transport::Link> link) {
  uint64_t id = next_id_.fetch_add(1);
  // The link's events arrive on the same loop, after this task.
  loop_->Post([this, id, link = std::move(link)] {
    Stream& accepted = streams_[id];
    accepted.accepted = link;
    accepted.link = std::make_shared<transport::BulkLink>(
        link, transport::FrameSender::Stamp{.incarnation = options_.incarnation});
    loop_->PostAt(Clock::now() + kHelloLimit, [this, id] {
      auto stream = streams_.find(id);
      if (stream != streams_.end() && stream->second.client == nullptr &&
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
  admission_.SetKey(std::move(key));
  std::vector<std::pair<uint64_t, Frames>> early;
  for (auto& [id, stream] : streams_) early.emplace_back(id, std::exchange(stream.early, {}));
  OnFrames(std::move(early));
}

void DataStreams::Admit(SessionId session) {
  if (!admission_.Admit(session)) return;
  std::vector<std::pair<uint64_t, Frames>> early;
  for (auto& [id, stream] : streams_) {
    if (stream.awaits != session) continue;
    stream.awaits = {};
    early.emplace_back(id, std::exchange(stream.early, {}));
  }
  OnFrames(std::move(early));
}

void DataStreams::OnFrames(std::vector<std::pair<uint64_t, Frames>> early) {
  for (auto& [id, frames] : early) {
    for (wire::Frame& frame : frames) OnFrame(id, std::move(frame));
  }
}

void DataStreams::OnWritable(uint64_t id) {
  auto stream = streams_.find(id);
  if (stream == streams_.end()) return;
  if (stream->second.owner != nullptr) return stream->second.owner->OnPeerWritable(id);
  if (stream->second.client == nullptr) return;
  stream->second.client->OnWritable();
  fetches_.Pump(stream->second.client->session());
}

void DataStreams::OnFrame(uint64_t id, wire::Frame frame) {
  auto entry = streams_.find(id);
  if (entry == streams_.end()) return;  // already rejected
  Stream& stream = entry->second;
  if (stream.awaits != SessionId()) {
    return Refuse(id, absl::FailedPreconditionError(absl::StrCat(
                          "Session ", stream.awaits, " is not admitted to this worker yet.")));
  }
  if (!admission_.has_key()) {
    if (stream.early.size() < kEarlyFramesMax) return stream.early.push_back(std::move(frame));
    return Refuse(id,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "More than ", kEarlyFramesMax, " frames came before the worker was ready.")));
  }
  if (stream.owner != nullptr) return stream.owner->OnPeerFrame(id, std::move(frame));
  if (stream.client == nullptr) {
    if (!frame.has_hello())
      return Refuse(id, absl::InvalidArgumentError("The first frame must be a Hello."));
    return OnHello(id, stream, std::move(frame));
  }
  if (absl::Status taken = OnClientFrame(*stream.client, std::move(frame)); !taken.ok())
    Refuse(id, taken);
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
  const SessionId session(hello.session());
  if (absl::Status may = admission_.Check(session, hello.token()); !may.ok())
    return Refuse(id, may);
  stream.accepted->Admit();
  if (admission_.IsAdmitted(session)) return OpenStream(id, stream, session, hello.name());
  stream.awaits = session;  // its client may know of the admission before this worker does
  stream.early.push_back(std::move(frame));
}

// A worker proves that it knows the cluster's key; what it may then read, the owner of the stream decides.
void DataStreams::OnPeerHello(uint64_t id, Stream& stream, const wire::Hello& hello) {
  if (absl::Status may = admission_.CheckPeer(hello.token()); !may.ok()) return Refuse(id, may);
  stream.accepted->Admit();
  stream.owner = options_.peers.at(hello.role());
  stream.owner->AcceptPeer(id, stream.accepted, hello);
}

void DataStreams::OpenStream(uint64_t id, Stream& stream, SessionId session,
                             const std::string& client) {
  stream.client = std::make_unique<ClientStream>(session, client, stream.link);
  if (auto old = open_.find(session); old != open_.end()) {
    const uint64_t replaced = old->second;
    streams_.at(replaced).link->Close(
        absl::CancelledError("The session opened another data stream."));
    OnClosed(replaced);
  }
  open_[session] = id;
  stream.client->Open(listener_.get());
  callbacks_.Attach(*stream.client);
  fetches_.Attach(*stream.client);
}

absl::Status DataStreams::OnClientFrame(ClientStream& stream, wire::Frame frame) {
  if (absl::Status read = stream.CheckRead(); !read.ok()) return read;
  if (frame.has_bulk()) return OnBulk(stream, frame.bulk());
  if (frame.has_piece() || frame.has_host_callback_reply())
    return callbacks_.OnReply(stream.session(), std::move(frame));
  if (frame.has_heartbeat()) stream.Answer(transport::BulkLink::ReplyTo(frame));
  return absl::OkStatus();
}

// Of uploads and fetches only: a client may name nothing else.
absl::Status DataStreams::OnBulk(ClientStream& stream, const wire::Bulk& bulk) {
  if (bulk.name().has_upload()) return uploads_.OnBulk(stream, bulk);
  if (bulk.name().has_fetch()) fetches_.OnBulk(stream, bulk);
  return absl::OkStatus();
}

void DataStreams::SendShard(SessionId session, FetchId fetch, uint32_t shard,
                            std::shared_ptr<FetchedShard> bytes, Sent sent) {
  if (admission_.HasEnded(session)) return sent(absl::CancelledError("The session ended."));
  fetches_.Send(session, fetch, shard, std::move(bytes), std::move(sent));
}

void DataStreams::FailShards(const FailFetch& fail) {
  if (!admission_.HasEnded(fail.session)) fetches_.SendFailures(fail);
}

void DataStreams::SendCallback(SessionId session, wire::HostCallback callback) {
  if (admission_.HasEnded(session))
    return callbacks_.Lose(session, absl::CancelledError("The session ended."));
  callbacks_.Send(session, std::move(callback));
}

std::string DataStreams::ClientOf(SessionId session) const {
  auto entry = open_.find(session);
  return entry == open_.end() ? "" : streams_.at(entry->second).client->client();
}

UploadStaging::Shards DataStreams::TakeUpload(SessionId session, UploadId upload) {
  return uploads_.Take(session, upload);
}

void DataStreams::RefuseUpload(SessionId session, UploadId upload) {
  if (!admission_.HasEnded(session)) uploads_.Refuse(session, upload);
}

void DataStreams::DropIdleMemory() {
  const std::vector<uint64_t> dropped = pool_.DropIdle(Clock::now());
  for (auto& [id, stream] : streams_) {
    if (stream.client != nullptr) stream.client->Forget(dropped);
  }
}

void DataStreams::OnClosed(uint64_t id) {
  auto closed = streams_.extract(id);
  if (closed.empty()) return;
  if (closed.mapped().owner != nullptr) closed.mapped().owner->OnPeerClosed(id);
  if (closed.mapped().client == nullptr) return;
  const SessionId session = closed.mapped().client->session();
  open_.erase(session);
  callbacks_.Detach(session);
  fetches_.Detach(session);
  callbacks_.Lose(
      session, absl::UnavailableError("The client's data stream closed before it answered a host "
                                      "callback: its process has ended, or the network is cut."));
  fetches_.Fail(session,
                absl::UnavailableError("The client's data stream closed before it had all bytes."));
}

void DataStreams::Refuse(uint64_t id, const absl::Status& why) {
  streams_.at(id).link->Refuse(why);
  OnClosed(id);
}

void DataStreams::EndSession(SessionId session) {
  admission_.End(session);
  options_.staging->EndSession(session);
  if (auto open = open_.extract(session); !open.empty()) {
    callbacks_.Detach(session);
    fetches_.Detach(session);
    streams_.at(open.mapped()).link->Close(absl::CancelledError("The session has ended."));
    streams_.erase(open.mapped());
  }
  fetches_.EndSession(session, absl::CancelledError("The session ended."));
  callbacks_.EndSession(session, absl::CancelledError("The session ended."));
  uploads_.EndSession(session);
}

void DataStreams::CloseAll() {
  for (auto& [id, stream] : streams_)
    stream.accepted->Close(absl::UnavailableError("The worker is shutting down."));
  callbacks_.Clear();
  fetches_.Clear();
  uploads_.Clear();
  open_.clear();
  streams_.clear();
}

}  // namespace gangway::worker
