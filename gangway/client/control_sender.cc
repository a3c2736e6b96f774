// Implementation of control_sender.h.
#include "gangway/client/control_sender.h"

#include <utility>

#include "gangway/base/trace.h"

namespace gangway::client {
namespace {

// Unsent programs and operations: more than the controller accepts of one session's programs.
constexpr size_t kWaitingBytesMax = size_t{2} << 30;

}  // namespace

void ControlSender::Open(std::shared_ptr<transport::Link> link) {
  MutexLock lock(mutex_);
  sender_ = std::make_unique<transport::PacedSender>(
      std::move(link), [this](wire::Frame& sending) GANGWAY_NO_ANALYSIS { Stamp(sending); },
      transport::PacedSender::Options{.waiting_bytes_max = kWaitingBytesMax});
}

void ControlSender::SetSession(uint64_t epoch, SessionId session) {
  MutexLock lock(mutex_);
  epoch_ = epoch;
  session_ = session;
}

uint64_t ControlSender::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

absl::Status ControlSender::Send(wire::Frame frame) {
  MutexLock lock(mutex_);
  return sender_ ? sender_->Send(std::move(frame)) : absl::OkStatus();
}

absl::Status ControlSender::OnWritable() {
  MutexLock lock(mutex_);
  return sender_ ? sender_->OnWritable() : absl::OkStatus();
}

void ControlSender::Close() {
  MutexLock lock(mutex_);
  sender_.reset();
}

void ControlSender::Stamp(wire::Frame& frame) {
  frame.set_epoch(epoch_);
  frame.set_sequence(++sequence_);
  if (!frame.has_piece()) Trace(TraceKind::kSubmit, 0, session_, {}, sequence_);
}

}  // namespace gangway::client
