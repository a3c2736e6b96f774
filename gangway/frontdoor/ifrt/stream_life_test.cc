// StreamLife: what ends a stream, what is then still under way, and who may delete its call.
#include "gangway/frontdoor/ifrt/stream_life.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace gangway::ifrt {
namespace {

using Ended = StreamLife::Ended;
using Next = StreamLife::Next;

TEST(StreamLifeTest, TM1_AFirstRequestThatComesInTimeHasNoLimitAnyMore) {
  StreamLife life;
  ASSERT_TRUE(life.BeginRead());
  ASSERT_TRUE(life.TakeRead());
  EXPECT_FALSE(life.Expire());
  life.EndRead(Next::kMore);
  EXPECT_TRUE(life.BeginRead()) << "the session goes on";
}

TEST(StreamLifeTest, TM1_AFirstRequestAfterItsLimitCountsForNothing) {
  StreamLife life;
  ASSERT_TRUE(life.BeginRead());
  EXPECT_TRUE(life.Expire());
  EXPECT_EQ(life.WaitForEnd(), Ended::kLate) << "although a read is under way";
  EXPECT_FALSE(life.TakeRead());
  EXPECT_FALSE(life.BeginRead());
  life.End();
  EXPECT_EQ(life.WaitForEnd(), Ended::kLate) << "the end of the stream comes after the limit";
  EXPECT_TRUE(life.BeginFinish());
  EXPECT_FALSE(life.TakeRead());
}

TEST(StreamLifeTest, TheLimitOfAStreamThatHasEndedDoesNotPass) {
  StreamLife life;
  ASSERT_TRUE(life.BeginRead());
  life.End();
  EXPECT_FALSE(life.Expire());
  EXPECT_TRUE(life.TakeRead()) << "it tells that no request follows";
  life.EndRead(Next::kNone);
  EXPECT_EQ(life.WaitForEnd(), Ended::kByStream);
}

TEST(StreamLifeTest, TheEndWaitsForTheRequestThatIsBeingHandled) {
  StreamLife life;
  ASSERT_TRUE(life.BeginRead());
  ASSERT_TRUE(life.TakeRead());
  life.End();
  auto ended = std::async(std::launch::async, [&] { return life.WaitForEnd(); });
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_FALSE(life.BeginRead()) << "no other one is read";
  life.EndRead(Next::kMore);
  EXPECT_EQ(ended.get(), Ended::kByStream);
}

TEST(StreamLifeTest, ARequestAfterWhichNoneComesEndsTheStream) {
  StreamLife life;
  ASSERT_TRUE(life.BeginRead());
  ASSERT_TRUE(life.TakeRead());
  life.EndRead(Next::kNone);
  EXPECT_FALSE(life.BeginRead());
  EXPECT_EQ(life.WaitForEnd(), Ended::kByStream);
}

TEST(StreamLifeTest, TheLastOperationOfAFinishedStreamIsToldOnce) {
  StreamLife life;
  life.BeginOperation();
  ASSERT_TRUE(life.BeginFinish());
  EXPECT_FALSE(life.BeginFinish()) << "one status is sent";
  EXPECT_FALSE(life.EndOperation());  // the write
  life.End();
  EXPECT_FALSE(life.EndOperation());  // the notice of the end
  life.Finish();
  EXPECT_TRUE(life.EndOperation());  // the status
}

TEST(StreamLifeTest, NothingUnderWayIsNoEndWithoutAStatus) {
  StreamLife life;
  life.End();
  EXPECT_FALSE(life.EndOperation());
}

}  // namespace
}  // namespace gangway::ifrt
