// Implementation of confirming_sender.h.
#include "gangway/client/confirming_sender.h"

#include <optional>

namespace gangway::client {

absl::Status ConfirmingSender::Send(wire::Frame frame) {
  const wire::Bulk& bulk = frame.bulk();
  const bool proves = bulk.has_bytes() || bulk.has_placed();
  const UploadId upload{proves ? bulk.name().upload() : 0};  // 0: nothing to prove
  return frames_->Send(std::move(frame), [this, upload] {
    if (upload == UploadId()) return;
    MutexLock lock(mutex_);
    if (unproven_.empty() || unproven_.back() != upload) unproven_.push_back(upload);
  });
}

void ConfirmingSender::Ask(transport::BulkLink& link, Clock::time_point now) {
  if (question_.state == Asked::kNothing) {
    MutexLock lock(mutex_);
    question_ = {.state = Asked::kUnsent, .uploads = std::exchange(unproven_, {})};
  }
  link.Await(now);
  if (question_.state == Asked::kSent) return;
  const std::optional<uint64_t> number = link.Ask();
  if (!number) return;
  question_.state = Asked::kSent;
  question_.number = *number;
}

void ConfirmingSender::OnReply(transport::BulkLink& link, uint64_t number) {
  if (question_.state != Asked::kSent || number != question_.number) return;
  question_ = {};
  link.Rest();
}

std::set<UploadId> ConfirmingSender::Unproven() const {
  std::set<UploadId> unproven(question_.uploads.begin(), question_.uploads.end());
  MutexLock lock(mutex_);
  unproven.insert(unproven_.begin(), unproven_.end());
  return unproven;
}

bool ConfirmingSender::IsBusy() const {
  if (question_.state != Asked::kNothing) return true;
  MutexLock lock(mutex_);
  return !unproven_.empty();
}

}  // namespace gangway::client
