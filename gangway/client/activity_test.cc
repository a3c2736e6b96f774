// Activity: when the links are looked at.
#include "gangway/client/activity.h"

#include <gtest/gtest.h>

#include <future>

#include "gangway/client/recorded_session.h"

namespace gangway::client {
namespace {

class ActivityTest : public ::testing::Test {
 protected:
  bool LooksReach(int count) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (session_.looks < count && Clock::now() < deadline) session_.OnLoop([] {});
    return session_.looks >= count;
  }
  // Whether no look follows, however many intervals pass.
  bool LooksEnd() {
    session_.OnLoop([] {});
    const int before = session_.looks;
    std::promise<void> later;
    session_.loop.PostAt(Clock::now() + std::chrono::milliseconds(40), [&] { later.set_value(); });
    later.get_future().wait();
    return session_.looks == before;
  }

  RecordedSession session_;
};

TEST_F(ActivityTest, NothingIsLookedAtWhileNothingIsUnderWay) {
  EXPECT_TRUE(LooksEnd());
  EXPECT_EQ(session_.looks, 0);
}

TEST_F(ActivityTest, LooksGoOnWhileThereIsSomethingToLookAt) {
  session_.look_again = true;
  session_.activity.Begin();
  EXPECT_TRUE(session_.activity.awaits());
  EXPECT_TRUE(LooksReach(5));
  session_.activity.End();
  EXPECT_FALSE(session_.activity.awaits());
  session_.look_again = false;
  EXPECT_TRUE(LooksReach(session_.looks + 1));
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!LooksEnd() && Clock::now() < deadline) continue;
  EXPECT_TRUE(LooksEnd());
}

// A push may be on its way to a link.
TEST_F(ActivityTest, TwoLooksAtNothingAreTheLast) {
  session_.activity.Watch();
  EXPECT_TRUE(LooksReach(2));
  EXPECT_TRUE(LooksEnd());
  EXPECT_EQ(session_.looks, 2);
  session_.activity.Watch();
  EXPECT_TRUE(LooksReach(4));
  EXPECT_TRUE(LooksEnd());
  EXPECT_EQ(session_.looks, 4);
}

TEST_F(ActivityTest, ALostSessionIsNotLookedAt) {
  session_.look_again = true;
  session_.activity.Begin();
  session_.activity.Stop();
  EXPECT_TRUE(LooksEnd());
  session_.activity.Watch();
  EXPECT_TRUE(LooksEnd());
}

}  // namespace
}  // namespace gangway::client
