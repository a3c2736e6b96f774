// Implementation of client_uploads.h.
#include "gangway/worker/service/transfer/client_uploads.h"

#include <utility>

#include "gangway/base/trace.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {

ClientUploads::ClientUploads(std::shared_ptr<StagingMemory> memory, transport::LendingPool* pool,
                             Events events)
    : memory_(std::move(memory)), pool_(pool), events_(std::move(events)) {}

absl::Status ClientUploads::OnBulk(ClientStream& stream, const wire::Bulk& bulk) {
  const wire::ShardName& name = bulk.name();
  if (bulk.has_bytes()) return OnBytes(stream.session(), name, bulk.bytes());
  if (bulk.has_placed()) return OnPlaced(stream.session(), name);
  if (bulk.has_place_request()) OnPlaceRequest(stream, name, bulk.place_request().size());
  if (bulk.has_dropped()) GiveUp(stream.session(), UploadId(name.upload()));
  return absl::OkStatus();
}

absl::Status ClientUploads::OnBytes(SessionId session, const wire::ShardName& name,
                                    const wire::ShardBytes& bytes) {
  received_bytes_ += bytes.data().size();
  const UploadId upload{name.upload()};
  UploadStaging& staging = StagingOf(session);
  const absl::StatusOr<bool> complete = staging.Add(upload, name.shard(), bytes);
  if (absl::IsResourceExhausted(complete.status())) {
    staging.Refuse(upload);
    events_.on_refused({session, upload, wire::ToFailure(complete.status()), false});
    return absl::OkStatus();
  }
  if (!complete.ok()) return complete.status();
  if (*complete) OnStaged(session, name);
  return absl::OkStatus();
}

absl::Status ClientUploads::OnPlaced(SessionId session, const wire::ShardName& name) {
  UploadStaging& staging = StagingOf(session);
  const absl::StatusOr<bool> complete = staging.Place(UploadId(name.upload()), name.shard());
  if (!complete.ok()) return complete.status();
  const size_t size = staging.SizeOf(UploadId(name.upload()), name.shard());
  received_bytes_ += size;
  received_shared_bytes_ += size;
  if (*complete) OnStaged(session, name);
  return absl::OkStatus();
}

// Answers without a place if no block is available; the shard then arrives in pieces.
void ClientUploads::OnPlaceRequest(ClientStream& stream, const wire::ShardName& name, size_t size) {
  wire::Frame frame;
  *frame.mutable_bulk()->mutable_name() = name;
  wire::PlaceAnswer& answer = *frame.mutable_bulk()->mutable_place_answer();
  if (auto block = pool_->Allocate(stream.segments(), size)) {
    const wire::SharedBlock place = transport::NameOf(*block, size);
    if (StagingOf(stream.session())
            .Reserve(UploadId(name.upload()), name.shard(), std::move(block)))
      *answer.mutable_place() = place;
  }
  stream.Answer(std::move(frame));
}

// No node will use it: the controller has refused it, or its client has given it up.
void ClientUploads::GiveUp(SessionId session, UploadId upload) {
  StagingOf(session).Refuse(upload);
  events_.on_refused(
      {session, upload,
       wire::MakeFailure(absl::StatusCode::kCancelled, "The client gave this upload up."),
       /*unwanted=*/true});
}

void ClientUploads::OnStaged(SessionId session, const wire::ShardName& name) {
  const size_t bytes = StagingOf(session).SizeOf(UploadId(name.upload()), name.shard());
  Trace(TraceKind::kUpload, name.shard(), session, {}, bytes);
  events_.on_staged({.session = session,
                     .upload = UploadId(name.upload()),
                     .shard = name.shard(),
                     .bytes = bytes});
}

UploadStaging& ClientUploads::StagingOf(SessionId session) {
  return sessions_.try_emplace(session, memory_, session).first->second;
}

UploadStaging::Shards ClientUploads::Take(SessionId session, UploadId upload) {
  auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return {};
  return entry->second.Take(upload);
}

void ClientUploads::Refuse(SessionId session, UploadId upload) {
  StagingOf(session).Refuse(upload);
}

size_t ClientUploads::count() const {
  size_t count = 0;
  for (const auto& [session, staging] : sessions_) count += staging.upload_count();
  return count;
}

std::vector<UploadsMoved> ClientUploads::TakeMoved() {
  std::vector<UploadsMoved> moved;
  for (auto& [session, staging] : sessions_) {
    std::vector<UploadId> uploads = staging.TakeMoved();
    if (!uploads.empty()) moved.push_back({session, std::move(uploads)});
  }
  return moved;
}

}  // namespace gangway::worker
