// How a stream handles its peer's messages, without a network: each is a batch of frames, delivered
// in order, or ends the link; on_closed reports the end once, last.
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/support/slice.h>

#include <deque>
#include <utility>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/transport/batch.pb.h"
#include "gangway/transport/grpc/stream.h"

namespace gangway::transport {
namespace {

class Inline final : public Executor {
 public:
  void Post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void Drain() {
    for (; !tasks_.empty(); tasks_.pop_front()) tasks_.front()();
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

// Plays the gRPC call: the target completes the operations that the stream starts.
class FuzzStream final : public Stream {
 public:
  using Stream::Stream;

  bool Feed(std::string_view bytes, size_t slice_bytes) {
    if (into_ == nullptr) return false;
    std::vector<grpc::Slice> slices;
    for (size_t at = 0; at < bytes.size(); at += slice_bytes)
      slices.emplace_back(std::string(bytes.substr(at, slice_bytes)));
    *std::exchange(into_, nullptr) = grpc::ByteBuffer(slices.data(), slices.size());
    Completed(Operation::kRead, true);
    return true;
  }

  // The peer is lost: pending operations complete, then the call. This may destroy the stream.
  void EndCall() {
    if (std::exchange(writing_, false)) Completed(Operation::kWrite, false);
    if (std::exchange(into_, nullptr) != nullptr) Completed(Operation::kRead, false);
    GANGWAY_CHECK(finishing_, "the end of reading ends the call");
    Completed(Operation::kFinish, true);
  }

 protected:
  void StartRead(grpc::ByteBuffer* into, void*) override { into_ = into; }
  void StartWrite(const grpc::ByteBuffer&, void*) override { writing_ = true; }
  void StartLastWrite(const grpc::ByteBuffer&, void*) override { writing_ = true; }
  Operation LastWriteOperation() const override { return Operation::kWrite; }
  void StartFinish(void*) override { finishing_ = true; }
  bool FinishNeedsIdleWriter() const override { return false; }
  void CancelCall() override {}
  void ReleaseCall() override {}
  absl::Status LostStatus() const override { return absl::UnavailableError("lost"); }

 private:
  grpc::ByteBuffer* into_ = nullptr;
  bool writing_ = false;
  bool finishing_ = false;
};

struct Seen {
  std::vector<std::string> frames;
  int closed = 0;
};

LinkEvents Observe(Executor* executor, Seen* seen) {
  return {.executor = executor,
          .on_frame =
              [seen](const wire::Frame& frame) {
                GANGWAY_CHECK(seen->closed == 0, "no frame after the end");
                seen->frames.push_back(frame.SerializePartialAsString());
              },
          .on_writable = {},
          .on_closed = [seen](const absl::Status&) { ++seen->closed; }};
}

void RunStream(std::string_view bytes) {
  static auto* queue = new grpc::CompletionQueue;  // never destroyed
  Inline executor;
  Seen seen;
  auto set = std::make_shared<StreamSet>();
  const size_t slice_bytes = bytes.empty() ? 1 : 1 + static_cast<unsigned char>(bytes[0]);
  std::weak_ptr<FuzzStream> alive;
  {
    auto stream = std::make_shared<FuzzStream>(set, queue, LinkOptions(), size_t{1} << 20);
    stream->Init();
    GANGWAY_CHECK(set->Add(stream), "an open set");
    alive = stream;
    stream->Start(Observe(&executor, &seen));
    std::vector<std::string> expected;
    bool open = true;
    for (std::string_view message : fuzz::Split(bytes)) {
      if (!stream->Feed(message, slice_bytes)) break;
      executor.Drain();
      Batch batch;
      const bool valid = batch.ParseFromArray(message.data(), static_cast<int>(message.size()));
      if (open && valid) {
        for (const auto& frame : batch.frames())
          expected.push_back(frame.SerializePartialAsString());
      }
      open = open && valid && !batch.has_close();
      GANGWAY_CHECK(seen.frames == expected, "the frames of valid messages, up to the end");
      GANGWAY_CHECK(seen.closed == (open ? 0 : 1), "bytes that are no batch, or a close, end it");
    }
    stream->EndCall();
  }
  executor.Drain();
  GANGWAY_CHECK(seen.closed == 1, "on_closed runs once");
  void* tag = nullptr;
  bool ok = false;
  // What is left is the deadline of a close, which the end has cancelled.
  while (!alive.expired() &&
         queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::seconds(5)) ==
             grpc::CompletionQueue::GOT_EVENT) {
    static_cast<Completion*>(tag)->Run(ok);
  }
  GANGWAY_CHECK(alive.expired(), "a stream is released after its call");
}

}  // namespace
}  // namespace gangway::transport

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  transport::Batch hello;
  hello.add_frames()->mutable_hello()->set_name("a peer");
  transport::Batch data;
  data.add_frames()->mutable_bulk()->mutable_bytes()->set_data(std::string(300, 'x'));
  data.add_frames()->mutable_heartbeat()->set_time_ns(1);
  transport::Batch close;
  close.mutable_close()->set_reason("done");
  return {Join({hello.SerializeAsString(), data.SerializeAsString(), close.SerializeAsString()}),
          Join({data.SerializeAsString(), "no batch", hello.SerializeAsString()})};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static auto* const before = google::protobuf::SetLogHandler(nullptr);
  gangway::transport::RunStream(gangway::fuzz::View(data, size));
  return 0;
}
