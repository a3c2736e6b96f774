// Tests of runtime_members.h.
#include "gangway/worker/service/launch/runtime_members.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

TEST(RuntimeMembersTest, AMemberStandsWhileItIsTheFirstInItsDevice) {
  RuntimeMembers members(2);
  InFlight executes;
  EXPECT_FALSE(members.IsStanding(1, executes));
  ASSERT_TRUE(executes.Begin(Clock::now()));  // an earlier program
  ASSERT_TRUE(executes.Begin(Clock::now()));
  members.Enter(1, executes);
  EXPECT_FALSE(members.IsStanding(1, executes)) << "it waits for the earlier program";
  executes.End();
  EXPECT_TRUE(members.IsStanding(1, executes));
  EXPECT_FALSE(members.IsStanding(0, executes));
  members.Leave(1);
  EXPECT_FALSE(members.IsStanding(1, executes));
}

TEST(RuntimeMembersTest, TheFirstMemberThatFailsIsNoted_ER2) {
  RuntimeMembers members(3);
  EXPECT_TRUE(members.NoteFailed(4));
  EXPECT_FALSE(members.NoteFailed(2));
  EXPECT_EQ(members.failed_device(), 4);
}

TEST(RuntimeMembersTest, NoMemberWaitsForTheOnlyOne) {
  RuntimeMembers one(1), none(0);
  EXPECT_FALSE(one.NoteFailed(0));
  EXPECT_FALSE(none.NoteFailed(0));
}

}  // namespace
}  // namespace gangway::worker
