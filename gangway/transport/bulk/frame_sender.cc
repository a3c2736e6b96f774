// Implementation of frame_sender.h.
#include "gangway/transport/bulk/frame_sender.h"

#include <utility>

#include "gangway/base/status.h"

namespace gangway::transport {

FrameSender::FrameSender(std::shared_ptr<Link> link, const Stamp& stamp, Bytes bytes)
    : stamp_(stamp), bytes_(bytes), link_(std::move(link)) {}

absl::Status FrameSender::Send(wire::Frame frame, absl::FunctionRef<void()> taken) {
  MutexLock lock(mutex_);
  if (link_ == nullptr) return absl::UnavailableError("the link is closed");
  if (stamp_.epoch != 0) frame.set_epoch(stamp_.epoch);
  frame.set_incarnation(stamp_.incarnation.number());
  frame.set_sequence(sequence_ + 1);
  const size_t bytes = bytes_ == Bytes::kCounted ? frame.ByteSizeLong() : 0;
  GANGWAY_RETURN_IF_ERROR(link_->Send(std::move(frame)));
  ++sequence_;
  taken_bytes_ += bytes;
  taken();
  return absl::OkStatus();
}

FrameSender::Progress FrameSender::progress() const {
  MutexLock lock(mutex_);
  return {.queued = link_ == nullptr ? 0 : link_->queued_bytes(), .taken = taken_bytes_};
}

bool FrameSender::is_full() const {
  MutexLock lock(mutex_);
  return link_ != nullptr && link_->queued_bytes() > link_->writable_bytes();
}

void FrameSender::Close(const absl::Status& why) {
  std::shared_ptr<Link> link;
  {
    MutexLock lock(mutex_);
    link = std::exchange(link_, nullptr);
  }
  if (link != nullptr) link->Close(why);
}

}  // namespace gangway::transport
