// What a client's stream keeps while its link takes nothing (client_stream.h).
#include "gangway/worker/service/transfer/client_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/transport/shm/shared_pool.h"
#include "gangway/worker/service/transfer/client_stream_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;

constexpr SessionId kSession(7);

wire::Frame Numbered(uint64_t number) {
  wire::Frame frame;
  frame.mutable_heartbeat()->set_time_ns(number);
  return frame;
}

std::vector<uint64_t> Numbers(const RecordingLink& link) {
  std::vector<uint64_t> numbers;
  for (const wire::Frame& frame : link.frames) numbers.push_back(frame.heartbeat().time_ns());
  return numbers;
}

TEST(ClientStreamTest, ItsHelloIsAnsweredWithItsSession) {
  auto link = std::make_shared<RecordingLink>();
  ClientStream stream(kSession, "script",
                      std::make_shared<transport::BulkLink>(
                          link, transport::FrameSender::Stamp{.incarnation = Incarnation(5)}));
  stream.Open(nullptr);
  ASSERT_EQ(link->frames.size(), 1u);
  EXPECT_EQ(link->frames[0].hello_reply().session(), 7u);
  EXPECT_FALSE(stream.segments().IsConnected());
  EXPECT_EQ(stream.client(), "script");
}

TEST(ClientStreamTest, AnswersKeepTheirOrderAcrossAFullLink) {
  TestStream test(kSession);
  test.link->room = 1;
  for (uint64_t number : {1, 2, 3}) test.stream.Answer(Numbered(number));
  test.link->room = 1;
  test.stream.OnWritable();
  EXPECT_THAT(Numbers(*test.link), ElementsAre(1, 2));
  test.link->room = 8;
  test.stream.Answer(Numbered(4));
  EXPECT_THAT(Numbers(*test.link), ElementsAre(1, 2)) << "it must not pass the third";
  test.stream.OnWritable();
  EXPECT_THAT(Numbers(*test.link), ElementsAre(1, 2, 3, 4));
}

TEST(ClientStreamTest, APieceThatTheLinkDoesNotTakeIsNotKept) {
  TestStream test(kSession);
  test.link->room = 1;
  EXPECT_TRUE(test.stream.Send(Numbered(1)));
  EXPECT_FALSE(test.stream.Send(Numbered(2)));
  test.link->room = 8;
  test.stream.OnWritable();
  EXPECT_THAT(Numbers(*test.link), ElementsAre(1));
}

TEST(ClientStreamTest, TM2_AClientThatDoesNotReadItsAnswersIsFound) {
  TestStream test(kSession);
  test.link->room = 0;
  for (size_t i = 1; i < ClientStream::kAnswersMax; ++i) test.stream.Answer(Numbered(i));
  EXPECT_TRUE(test.stream.CheckRead().ok());
  test.stream.Answer(Numbered(0));
  EXPECT_EQ(test.stream.CheckRead().code(), absl::StatusCode::kResourceExhausted);
  test.link->room = 1;
  test.stream.OnWritable();
  EXPECT_TRUE(test.stream.CheckRead().ok());
}

TEST(ClientStreamTest, AClientIsToldOfTheSegmentsThatItMapsOnceTheyAreGone) {
  auto listener = *transport::DescriptorListener::Open();
  auto pool = transport::SharedPool::Make(
      {.bytes_max = size_t{1} << 22, .segment_bytes = size_t{1} << 20, .writable = true});
  TestStream test(kSession, listener.get());
  ASSERT_TRUE(test.stream.segments().IsConnected());
  const auto block = pool->Allocate(4096);
  ASSERT_TRUE(test.stream.segments().HandOver(*block));
  const std::vector<uint64_t> dropped = {block->segment() + 1, block->segment()};
  test.stream.Forget(dropped);
  test.stream.Forget(dropped);
  ASSERT_EQ(test.link->frames.size(), 1u) << "not of what it does not map, and not again";
  EXPECT_THAT(test.link->frames[0].bulk().gone().segments(), ElementsAre(block->segment()));
}

}  // namespace
}  // namespace gangway::worker
