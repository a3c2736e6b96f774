// Implementation of response_writer.h.
#include "gangway/frontdoor/ifrt/response_writer.h"

#include <utility>

#include "gangway/frontdoor/ifrt/status.h"

namespace gangway::ifrt {

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

ResponseWriter::ResponseWriter(Stream* stream, grpc::ServerContext* context, size_t queue_max)
    : stream_(stream), context_(context), queue_max_(queue_max), thread_([this] { Run(); }) {}

ResponseWriter::~ResponseWriter() { Close(); }

void ResponseWriter::Send(IfrtResponse response) {
  bool notify = false;
  {
    MutexLock lock(mutex_);
    if (closing_ || broken_) return;
    if (queue_.size() >= queue_max_) {
      broken_ = true;
      context_->TryCancel();
      return;
    }
    queue_.push_back(std::move(response));
    notify = idle_;
    idle_ = false;
  }
  if (notify) wake_.NotifyOne();
}

void ResponseWriter::Close() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void ResponseWriter::Run() {
  std::vector<IfrtResponse> batch;
  for (;;) {
    batch.clear();
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !closing_) {
        idle_ = true;
        // An idle session has nothing to write for as long as it likes; the limit only bounds one
        // sleep.
        wake_.WaitFor(mutex_, std::chrono::minutes(1),
                      [this]() GANGWAY_NO_ANALYSIS { return !queue_.empty() || closing_; });
      }
      idle_ = false;
      if (queue_.empty() || broken_) return;
      batch.swap(queue_);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      grpc::WriteOptions options;
      if (i + 1 < batch.size()) options.set_buffer_hint();
      if (!stream_->Write(batch[i], options)) {
        MutexLock lock(mutex_);
        broken_ = true;
        return;
      }
    }
  }
}

}  // namespace gangway::ifrt
