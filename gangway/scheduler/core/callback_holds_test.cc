// For how long orphans and host callbacks have held devices.
#include "gangway/scheduler/core/callback_holds.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"
#include "gangway/scheduler/core/orphans.h"

namespace gangway::scheduler {
namespace {

using std::chrono::milliseconds;

Time At(int ms) { return kStart + milliseconds(ms); }

TEST(CallbackHoldsTest, ASessionsTimeCountsOnce) {
  CallbackHolds holds(milliseconds(1000));
  EXPECT_FALSE(holds.Note(SessionId(1), At(0)));
  EXPECT_FALSE(holds.Note(SessionId(1), At(500)));
  EXPECT_FALSE(holds.Note(SessionId(1), At(500)));  // another device of the session
  EXPECT_FALSE(holds.Note(SessionId(2), At(999)));
  EXPECT_FALSE(holds.Note(SessionId(1), At(999)));
  EXPECT_TRUE(holds.Note(SessionId(1), At(1000)));
  holds.EndSession(SessionId(1));
  EXPECT_FALSE(holds.Note(SessionId(1), At(1001)));
}

TEST(CallbackHoldsTest, TimeWithoutAHoldCountsAgainstIt) {
  CallbackHolds holds(milliseconds(4000));
  for (int ms = 0; ms <= 3000; ms += 500) EXPECT_FALSE(holds.Note(SessionId(1), At(ms)));
  EXPECT_FALSE(holds.Note(SessionId(1), At(5000)));  // 2 s without: 1 s is left
  EXPECT_FALSE(holds.Note(SessionId(1), At(6400)));
  EXPECT_FALSE(holds.Note(SessionId(1), At(7800)));
  EXPECT_TRUE(holds.Note(SessionId(1), At(8000)));
}

class OrphanRulesTest : public ::testing::Test {
 protected:
  // Device 0 has the launch first.
  size_t Look(const NodeState* first, int ms) {
    return orphans_.Look({first, nullptr, nullptr, nullptr}, At(ms)).size();
  }

  TwoWorkerFleet two_;
  Orphans orphans_{4, milliseconds(1000)};
  NodeState orphan_ = LaunchNode(1, {0}, two_);
  NodeState live_ = LaunchNode(2, {0}, two_);
};

TEST_F(OrphanRulesTest, AnOrphanIsOverdueOnceItHasBeenFirstForTheLimit) {
  EXPECT_EQ(orphans_.next_look(), std::nullopt);
  orphans_.Add(Ordinal(1), At(0));
  EXPECT_EQ(orphans_.next_look(), At(0));
  EXPECT_EQ(Look(&orphan_, 0), 0u);
  EXPECT_EQ(orphans_.next_look(), At(250));
  EXPECT_FALSE(orphans_.IsDue(At(249)));
  EXPECT_TRUE(orphans_.IsDue(At(250)));
  EXPECT_EQ(Look(&orphan_, 999), 0u);
  EXPECT_EQ(Look(&orphan_, 1000), 1u);
  orphans_.Remove(Ordinal(1));
  EXPECT_EQ(orphans_.next_look(), std::nullopt);
}

TEST_F(OrphanRulesTest, BehindALiveLaunchItHoldsNothing) {
  orphans_.Add(Ordinal(1), At(0));
  EXPECT_EQ(Look(&orphan_, 0), 0u);
  EXPECT_EQ(Look(&live_, 500), 0u);
  EXPECT_EQ(Look(&orphan_, 600), 0u);
  EXPECT_EQ(Look(&orphan_, 1599), 0u);
  EXPECT_EQ(Look(&orphan_, 1600), 1u);
}

TEST_F(OrphanRulesTest, TheFirstOrphanAfterNoneStartsAtZero) {
  orphans_.Add(Ordinal(1), At(0));
  EXPECT_EQ(Look(&orphan_, 0), 0u);
  orphans_.Remove(Ordinal(1));
  orphans_.Add(Ordinal(1), At(5000));
  EXPECT_EQ(Look(&orphan_, 5000), 0u);
  EXPECT_EQ(Look(&orphan_, 6000), 1u);
}

}  // namespace
}  // namespace gangway::scheduler
