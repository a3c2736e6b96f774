// Implementation of response_writer.h.
#include "gangway/frontdoor/ifrt/response_writer.h"

#include <utility>

#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {
namespace {
constexpr size_t kSoonMax = 64;  // this many responses are written without waiting for more
}

IfrtResponse ReplyTo(uint64_t op_id) {
  IfrtResponse response;
  response.mutable_response_metadata()->set_op_id(op_id);
  return response;
}

IfrtResponse ErrorReply(uint64_t op_id, const absl::Status& status) {
  IfrtResponse response = ReplyTo(op_id);
  *response.mutable_response_metadata()->mutable_status() = ToProto(status);
  return response;
}

std::optional<IfrtResponse> ResponseWriter::TakeLocked(grpc::WriteOptions& options) {
  if (writing_ || broken_ || queue_.empty()) return std::nullopt;
  std::optional<IfrtResponse> response = std::move(queue_.front());
  queue_.pop_front();
  if (!queue_.empty()) options.set_buffer_hint();
  writing_ = true;
  return response;
}

void ResponseWriter::Send(IfrtResponse response, Urgency urgency) {
  grpc::WriteOptions options;
  std::optional<IfrtResponse> next;
  bool full = false, call_soon = false;
  {
    MutexLock lock(mutex_);
    if (closing_ || broken_) return;
    full = broken_ = queue_.size() >= queue_max_;
    if (!full) queue_.push_back(std::move(response));
    if (urgency == Urgency::kAtOnce || queue_.size() >= kSoonMax) {
      next = TakeLocked(options);
    } else if (!writing_) {
      call_soon = !std::exchange(soon_, true);
    }
  }
  if (full) cancel_();
  if (call_soon) call_soon_();
  if (next.has_value()) write_(*next, options);
}

void ResponseWriter::Flush() {
  grpc::WriteOptions options;
  std::optional<IfrtResponse> next;
  {
    MutexLock lock(mutex_);
    soon_ = false;
    next = TakeLocked(options);
  }
  if (next.has_value()) write_(*next, options);
}

void ResponseWriter::Written(bool ok) {
  grpc::WriteOptions options;
  std::optional<IfrtResponse> next;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) broken_ = true;
    next = TakeLocked(options);
    if (!writing_) idle_.NotifyAll();
  }
  if (next.has_value()) write_(*next, options);
}

void ResponseWriter::Drain(std::chrono::seconds limit) {
  Flush();
  MutexLock lock(mutex_);
  closing_ = true;
  const auto idle = [this]() GANGWAY_NO_ANALYSIS { return !writing_; };
  if (idle_.WaitFor(mutex_, limit, idle)) return;
  broken_ = true;
  cancel_();  // completes the write at once
  idle_.WaitFor(mutex_, limit, idle);
}

}  // namespace gangway::ifrt
