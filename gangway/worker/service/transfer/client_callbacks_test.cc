// Host callbacks that wait for their client's stream, and replies to them (client_callbacks.h).
#include "gangway/worker/service/transfer/client_callbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/worker/service/transfer/client_stream_test_util.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSession(7), kOther(8);
constexpr std::chrono::seconds kPatience{30};
constexpr size_t kLarge = size_t{3} << 20;  // bytes that come in pieces

wire::HostCallback Callback(uint64_t call) {
  wire::HostCallback callback;
  callback.set_call(call);
  return callback;
}
wire::Frame Reply(uint64_t call) {
  wire::Frame frame;
  frame.mutable_host_callback_reply()->set_call(call);
  return frame;
}
std::vector<uint64_t> CallsOn(const RecordingLink& link) {
  std::vector<uint64_t> calls;
  for (const wire::Frame& frame : link.frames) {
    if (frame.has_host_callback()) calls.push_back(frame.host_callback().call());
  }
  return calls;
}

// The test's thread is the only one that calls, except where a wait ends.
class ClientCallbacksTest : public testing::Test {
 protected:
  explicit ClientCallbacksTest(milliseconds stream_wait_max = kStreamWaitMax)
      : callbacks_(&loop_,
                   {.on_reply =
                        [this](SessionId session, const wire::HostCallbackReply& reply) {
                          replies_.emplace_back(session, reply.call());
                        },
                    .on_lost =
                        [this](SessionId session, const absl::Status& why) {
                          lost_.push_back(session);
                          why_.Set(why);
                        }},
                   stream_wait_max) {}
  ~ClientCallbacksTest() override { loop_.Stop(); }

  EventLoop loop_{"test"};
  std::vector<std::pair<SessionId, uint64_t>> replies_;
  std::vector<SessionId> lost_;
  Answer<absl::Status> why_;
  ClientCallbacks callbacks_;
};

TEST_F(ClientCallbacksTest, CallsGoOutInOrderOnceTheirSessionHasAStream) {
  callbacks_.Send(kSession, Callback(1));
  callbacks_.Send(kSession, Callback(2));
  callbacks_.Send(kOther, Callback(9));
  TestStream test(kSession);
  callbacks_.Attach(test.stream);
  callbacks_.Send(kSession, Callback(3));
  EXPECT_THAT(CallsOn(*test.link), ElementsAre(1, 2, 3));
  EXPECT_TRUE(callbacks_.OnReply(kSession, Reply(2)).ok());
  EXPECT_THAT(replies_, ElementsAre(std::pair(kSession, uint64_t{2})));
}

TEST_F(ClientCallbacksTest, AReplyToNothingIsTheStreamsEnd) {
  EXPECT_EQ(callbacks_.OnReply(kSession, Reply(1)).code(), absl::StatusCode::kInvalidArgument);
  TestStream test(kSession);
  callbacks_.Attach(test.stream);
  EXPECT_EQ(callbacks_.OnReply(kSession, Reply(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(replies_, IsEmpty());
}

TEST_F(ClientCallbacksTest, RepliesBelongToTheStreamThatBroughtTheCall) {
  TestStream first(kSession), second(kSession);
  callbacks_.Attach(first.stream);
  callbacks_.Send(kSession, Callback(1));
  callbacks_.Detach(kSession);
  callbacks_.Attach(second.stream);
  EXPECT_FALSE(callbacks_.OnReply(kSession, Reply(1)).ok());
  callbacks_.Send(kSession, Callback(2));
  EXPECT_THAT(CallsOn(*second.link), ElementsAre(2));
  EXPECT_TRUE(callbacks_.OnReply(kSession, Reply(2)).ok());
}

TEST_F(ClientCallbacksTest, HalfAReplyGoesWithItsStream) {
  wire::Frame large = Reply(1);
  large.mutable_host_callback_reply()->add_results()->assign(kLarge, 'x');
  const std::vector<wire::Frame> parts = transport::CutPieces(std::move(large));
  ASSERT_GT(parts.size(), 2u);
  TestStream first(kSession), second(kSession);
  callbacks_.Attach(first.stream);
  callbacks_.Send(kSession, Callback(1));
  EXPECT_TRUE(callbacks_.OnReply(kSession, parts[0]).ok());
  callbacks_.Detach(kSession);
  callbacks_.Attach(second.stream);
  callbacks_.Send(kSession, Callback(1));
  for (const wire::Frame& part : parts) EXPECT_TRUE(callbacks_.OnReply(kSession, part).ok());
  EXPECT_THAT(replies_, ElementsAre(std::pair(kSession, uint64_t{1})));
}

TEST_F(ClientCallbacksTest, PiecesThatDoNotFitAreTheStreamsEnd) {
  wire::Frame large = Reply(1);
  large.mutable_host_callback_reply()->add_results()->assign(kLarge, 'x');
  std::vector<wire::Frame> parts = transport::CutPieces(std::move(large));
  TestStream test(kSession);
  callbacks_.Attach(test.stream);
  callbacks_.Send(kSession, Callback(1));
  EXPECT_TRUE(callbacks_.OnReply(kSession, parts[0]).ok());
  EXPECT_FALSE(callbacks_.OnReply(kSession, parts.back()).ok());
  EXPECT_THAT(replies_, IsEmpty());
}

TEST_F(ClientCallbacksTest, WhatIsLostDoesNotGoOutLater) {
  callbacks_.Send(kSession, Callback(1));
  callbacks_.Lose(kSession, absl::CancelledError("the stream closed"));
  EXPECT_THAT(lost_, ElementsAre(kSession));
  callbacks_.Send(kSession, Callback(2));
  TestStream test(kSession);
  callbacks_.Attach(test.stream);
  EXPECT_THAT(CallsOn(*test.link), ElementsAre(2));
}

TEST_F(ClientCallbacksTest, ASessionThatNeverCalledLosesNothingAtItsEnd) {
  callbacks_.EndSession(kSession, absl::CancelledError("The session ended."));
  EXPECT_THAT(lost_, IsEmpty());
  callbacks_.Send(kSession, Callback(1));
  callbacks_.EndSession(kSession, absl::CancelledError("The session ended."));
  EXPECT_THAT(lost_, ElementsAre(kSession));
}

class ImpatientCallbacksTest : public ClientCallbacksTest {
 protected:
  ImpatientCallbacksTest() : ClientCallbacksTest(milliseconds(100)) {}
};

TEST_F(ImpatientCallbacksTest, TM1_ACallIsLostWithoutAStream) {
  RunOn(loop_, [this] { callbacks_.Send(kSession, Callback(1)); });
  const auto why = why_.WaitFor(kPatience);
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why->message()), HasSubstr("no data stream to this worker"));
  TestStream test(kSession);
  RunOn(loop_, [&] { callbacks_.Attach(test.stream); });
  EXPECT_THAT(CallsOn(*test.link), IsEmpty());
}

TEST_F(ImpatientCallbacksTest, TheWaitOfAnEarlierCallEndsNoLaterOne) {
  Clock::time_point second;
  TestStream test(kSession);
  RunOn(loop_, [&] {
    callbacks_.Send(kSession, Callback(1));
    callbacks_.Attach(test.stream);
    callbacks_.Detach(kSession);
    loop_.PostAt(Clock::now() + milliseconds(50), [&] {
      second = Clock::now();
      callbacks_.Send(kSession, Callback(2));
    });
  });
  ASSERT_TRUE(why_.WaitFor(kPatience).has_value());
  EXPECT_GE(Clock::now() - second, milliseconds(100));
  RunOn(loop_, [&] { EXPECT_THAT(lost_, ElementsAre(kSession)); });
}

}  // namespace
}  // namespace gangway::worker
