// Tests of send_queue.h.
#include "gangway/transport/send_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/transport/batch.pb.h"

namespace gangway::transport {
namespace {

constexpr size_t kFrameBytes = 1000;  // about

class SendQueueTest : public testing::Test {
 protected:
  absl::Status Append() {
    wire::Frame frame;
    frame.mutable_hello()->set_name(std::string(kFrameBytes, 'x'));
    const size_t bytes = frame.ByteSizeLong();
    return queue_.Append(std::move(frame), {}, bytes, {.address = "the peer"});
  }
  static Batch Parse(const Outbox::Message& message) {
    std::string whole;
    for (const Outbox::Piece& piece : message.pieces) whole += piece.bytes();
    Batch batch;
    EXPECT_TRUE(batch.ParseFromString(whole));
    return batch;
  }

  // Four frames fill it, and it is writable again with one.
  SendQueue queue_{{.queue_bytes_max = 4 * kFrameBytes, .writable_bytes_max = 3 * kFrameBytes / 2},
                   0};
};

TEST_F(SendQueueTest, AFullQueueTakesNoFrameUntilItIsWrittenAndSaysSoOnce) {
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Append(), absl::OkStatus());
  const size_t full = queue_.bytes();
  EXPECT_GE(full, 4 * kFrameBytes);
  const absl::Status refused = Append();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), testing::HasSubstr("the peer"));
  EXPECT_FALSE(queue_.NoteWritten()) << "no message was taken";
  EXPECT_EQ(queue_.bytes(), full);
  EXPECT_EQ(Parse(queue_.Take()).frames_size(), 4);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.bytes(), full) << "what is being written counts";
  ASSERT_EQ(Append(), absl::ResourceExhaustedError(refused.message()));
  EXPECT_TRUE(queue_.NoteWritten());
  EXPECT_EQ(queue_.bytes(), 0u);
  ASSERT_EQ(Append(), absl::OkStatus());
  (void)queue_.Take();
  EXPECT_FALSE(queue_.NoteWritten()) << "it has not been above its mark since";
}

TEST_F(SendQueueTest, TheReasonOfACloseFollowsTheFramesAndCountsNothing) {
  ASSERT_EQ(Append(), absl::OkStatus());
  const size_t bytes = queue_.bytes();
  queue_.AppendClose(absl::CancelledError("it is done"));
  EXPECT_EQ(queue_.bytes(), bytes);
  int frames = 0;
  std::string reason;
  while (!queue_.empty()) {
    const Batch batch = Parse(queue_.Take());
    EXPECT_TRUE(reason.empty());
    frames += batch.frames_size();
    reason = batch.close().reason();
    (void)queue_.NoteWritten();
  }
  EXPECT_EQ(frames, 1);
  EXPECT_EQ(reason, "it is done");
}

TEST_F(SendQueueTest, AfterClearNothingIsQueued) {
  ASSERT_EQ(Append(), absl::OkStatus());
  (void)queue_.Take();
  ASSERT_EQ(Append(), absl::OkStatus());
  queue_.Clear();
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.bytes(), 0u);
  EXPECT_FALSE(queue_.NoteWritten());
  EXPECT_EQ(queue_.bytes(), 0u);
}

}  // namespace
}  // namespace gangway::transport
