// Implementation of stream.h.
#include "gangway/transport/grpc/stream.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/clock.h"
#include "gangway/base/status.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/traffic.h"

namespace gangway::transport {
namespace {

constexpr size_t kPendingBytesMax = 64 << 20;  // read and not yet taken by the receiver

// Owns the pieces until gRPC has sent them.
grpc::ByteBuffer ToByteBuffer(std::vector<Outbox::Piece> pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces.size());
  for (Outbox::Piece& piece : pieces) {
    auto* owned = new Outbox::Piece(std::move(piece));
    const std::string_view view = owned->bytes();
    slices.emplace_back(
        const_cast<char*>(view.data()), view.size(),
        [](void* p) { delete static_cast<Outbox::Piece*>(p); }, owned);
  }
  return {slices.data(), slices.size()};
}

}  // namespace

Stream::Stream(std::shared_ptr<StreamSet> set, grpc::CompletionQueue* queue, LinkOptions options,
               size_t message_bytes_max)
    : set_(std::move(set)),
      completions_(queue),
      options_(options),
      message_bytes_max_(message_bytes_max),
      queue_(options, trace_link_) {
  for (int i = 0; i < kOperations; ++i) {
    tags_[i].stream = this;
    tags_[i].operation = static_cast<Operation>(i);
  }
}

void Stream::Init() {
  events_ = std::make_shared<EventQueue>([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->ResumeReading();
  });
}

void Stream::Start(LinkEvents events) {
  bool read;
  {
    MutexLock lock(mutex_);
    if (reading_ == Reading::kNotStarted) reading_ = Reading::kIdle;
    read = TakeReadLocked();
  }
  NameTrace(TraceNameOf::kLink, trace_link_, peer_.address);
  events_->Start(std::move(events));
  if (read) StartRead(&incoming_, TagOf(Operation::kRead));
}

// --- Sending ---

absl::Status Stream::Send(wire::Frame frame, FrameParts parts) {
  const size_t bytes = frame.ByteSizeLong() + BytesOf(parts);
  if (bytes > frame_bytes_max()) return TooLarge(peer_, bytes, message_bytes_max_);
  Write write;
  {
    MutexLock lock(mutex_);
    if (closing_ || broken_) return LinkClosed(peer_, events_->end());
    GANGWAY_RETURN_IF_ERROR(queue_.Append(std::move(frame), parts, bytes, peer_));
    if (!TakeWriteLocked(&write)) return absl::OkStatus();
  }
  RunWrite(write);
  return absl::OkStatus();
}

bool Stream::TakeWriteLocked(Write* write) {
  if (writing_ || broken_ || stage_ != Stage::kOpen || queue_.empty()) return false;
  write->message = ToByteBuffer(queue_.Take().pieces);
  write->last = closing_ && queue_.empty();
  writing_ = true;
  ++operations_;
  if (write->last && LastWriteOperation() == Operation::kFinish) stage_ = Stage::kFinishing;
  return true;
}

void Stream::RunWrite(const Write& write) {
  if (write.last) {
    StartLastWrite(write.message, TagOf(LastWriteOperation()));
  } else {
    StartWrite(write.message, TagOf(Operation::kWrite));
  }
}

void Stream::OnWrite(bool ok) {
  Write write;
  bool take = false, finish = false, writable = false;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) {
      BreakLocked();
      CancelLocked();
    } else if (!broken_) {
      writable = queue_.NoteWritten();
      take = TakeWriteLocked(&write);
    }
    if (reading_ == Reading::kEnded) finish = TakeFinishLocked();
  }
  if (take) RunWrite(write);
  if (finish) StartFinish(TagOf(Operation::kFinish));
  if (writable) events_->PushWritable();
}

// --- Receiving ---

bool Stream::TakeReadLocked() {
  if (reading_ != Reading::kIdle) return false;
  reading_ = Reading::kInFlight;
  ++operations_;
  return true;
}

void Stream::EndReadLocked() {
  if (reading_ == Reading::kInFlight) reading_ = Reading::kIdle;
}

void Stream::ResumeReading() {
  {
    MutexLock lock(mutex_);
    if (!TakeReadLocked()) return;
  }
  StartRead(&incoming_, TagOf(Operation::kRead));
}

void Stream::OnRead(bool ok) {
  if (!ok) {
    {
      MutexLock lock(mutex_);
      EndReadLocked();
    }
    BeginFinish();
    return;
  }
  Batch batch;
  size_t bytes = incoming_.Length();
  Trace(TraceKind::kReceive, trace_link_, {}, {}, bytes);
  bool valid;
  {
    grpc::ProtoBufferReader reader(&incoming_);
    valid = reader.status().ok() && batch.ParseFromZeroCopyStream(&reader);
  }
  incoming_.Clear();
  bool discard;
  {
    MutexLock lock(mutex_);
    EndReadLocked();
    discard = closing_ || broken_;
  }
  if (!valid) {
    End(absl::InvalidArgumentError(
        absl::StrCat(peer_.address, " sent bytes that are not frames of this protocol")));
    Cancel();
  } else if (!discard) {
    CountReceived(static_cast<size_t>(batch.frames_size()), bytes);
    size_t share = bytes / (batch.frames_size() + 1) + 1;
    for (wire::Frame& frame : *batch.mutable_frames()) events_->Push(std::move(frame), share);
  }
  if (valid && batch.has_close()) {
    OnPeerClosed(batch.close().reason());
  } else if (!discard && events_->pending_bytes() >= kPendingBytesMax) {
    events_->NotifyBelow(kPendingBytesMax / 2);  // resumes
  } else {
    ResumeReading();
  }
}

void Stream::OnPeerClosed(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    BreakLocked();  // first, so that no Send succeeds after on_closed
    events_->Finish(absl::CancelledError(reason));
    if (!FinishNeedsIdleWriter()) CancelLocked();
  }
  if (FinishNeedsIdleWriter()) {
    BeginFinish();
  } else {
    ResumeReading();  // up to the end of the call
  }
}

// --- Ending ---

void Stream::Close(const absl::Status& reason) {
  events_->Mute();
  BeginClose(reason, Tell::kNobody);
}

void Stream::End(const absl::Status& status) { BeginClose(status, Tell::kOwner); }

void Stream::BeginClose(const absl::Status& reason, Tell tell) {
  Write write;
  bool take = false, read = false;
  {
    MutexLock lock(mutex_);
    if (closing_ || stage_ == Stage::kFinished || stage_ == Stage::kReleased) return;
    closing_ = true;
    if (tell == Tell::kOwner) events_->Finish(reason);
    if (!broken_) {
      queue_.AppendClose(reason);
      take = TakeWriteLocked(&write);
    }
    read = TakeReadLocked();
    ++operations_;
    deadline_.emplace();
    deadline_->Set(completions_, WallClock::now() + kCloseLimit, TagOf(Operation::kDeadline));
  }
  OnClosing();
  if (take) RunWrite(write);
  if (read) StartRead(&incoming_, TagOf(Operation::kRead));
}

std::string Stream::certificate() const {
  MutexLock lock(mutex_);
  return certificate_;
}

void Stream::SetCertificate(std::string pem) {
  MutexLock lock(mutex_);
  certificate_ = std::move(pem);
}

void Stream::Cancel() {
  MutexLock lock(mutex_);
  CancelLocked();
}

void Stream::CancelLocked() {
  if (stage_ != Stage::kReleased) CancelCall();
}

void Stream::BreakLocked() {
  broken_ = true;
  queue_.Clear();
}

void Stream::CountOperation() {
  MutexLock lock(mutex_);
  ++operations_;
}

bool Stream::TakeFinishLocked() {
  if (stage_ != Stage::kOpen || (writing_ && FinishNeedsIdleWriter())) return false;
  stage_ = Stage::kFinishing;
  ++operations_;
  return true;
}

void Stream::BeginFinish() {
  bool finish;
  {
    MutexLock lock(mutex_);
    reading_ = Reading::kEnded;
    BreakLocked();
    finish = TakeFinishLocked();
    // The write in flight ends, then the call.
    if (!finish && stage_ == Stage::kOpen) CancelLocked();
  }
  if (finish) StartFinish(TagOf(Operation::kFinish));
}

void Stream::OnFinish() {
  MutexLock lock(mutex_);
  stage_ = Stage::kFinished;
  BreakLocked();
  events_->Finish(LostStatus());
  if (deadline_.has_value()) deadline_->Cancel();
}

void Stream::Completed(Operation operation, bool ok) {
  switch (operation) {
    case Operation::kStart:
    case Operation::kMetadata:
      OnOpened(operation, ok);
      break;
    case Operation::kRead:
      OnRead(ok);
      break;
    case Operation::kWrite:
      OnWrite(ok);
      break;
    case Operation::kFinish:
      OnFinish();
      break;
    case Operation::kDeadline:
      if (ok) Cancel();
      break;
    case Operation::kConnecting:
      if (StillConnecting()) return;
      break;
  }
  Settle();
}

void Stream::Settle() {
  {
    MutexLock lock(mutex_);
    GANGWAY_CHECK(operations_ > 0, "gRPC completed an operation that was not started");
    if (--operations_ > 0 || stage_ != Stage::kFinished) return;
    stage_ = Stage::kReleased;
    deadline_.reset();
    ReleaseCall();
  }
  set_->Remove(this);  // may destroy this
}

}  // namespace gangway::transport
