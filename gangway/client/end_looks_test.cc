// EndLooks: when a session lets its ends be told together.
#include "gangway/client/end_looks.h"

#include <gtest/gtest.h>

namespace gangway::client {
namespace {

constexpr uint64_t kMany = EndLooks::kUnlookedEndsMax;

class EndLooksTest : public ::testing::Test {
 protected:
  void SetUp() override { looks_.End(); }  // the caller's

  // Of the next `count` nodes.
  void NoteEnds(uint64_t count) {
    looks_.NoteEnded(ended_ + 1, count);
    ended_ += count;
  }

  EndLooks looks_;
  uint64_t ended_ = 0;
};

TEST_F(EndLooksTest, ManyEndsWithoutALookAreToldTogetherFromThenOn) {
  NoteEnds(kMany - 1);
  EXPECT_FALSE(looks_.MayTellTogether());
  NoteEnds(1);
  EXPECT_TRUE(looks_.MayTellTogether());
  NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "the controller knows";
}

TEST_F(EndLooksTest, TheNextLookTakesThatBackOnce) {
  EXPECT_FALSE(looks_.Begin()) << "they are told at once";
  looks_.End();
  NoteEnds(kMany);
  ASSERT_TRUE(looks_.MayTellTogether());
  EXPECT_TRUE(looks_.Begin());
  EXPECT_FALSE(looks_.Begin());
  looks_.End();
  looks_.End();
  EXPECT_FALSE(looks_.MayTellTogether());
  NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST_F(EndLooksTest, EndsDuringALookDoNotCount) {
  looks_.Begin();
  NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether());
  looks_.End();
  EXPECT_FALSE(looks_.MayTellTogether());
  NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST_F(EndLooksTest, ALookMayEndBeforeItBegins) {
  looks_.End();
  NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "it is about to begin";
  EXPECT_FALSE(looks_.Begin());
  NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST_F(EndLooksTest, OneNodeFarAheadIsLookedForByItsNumberAndEndsAreToldTogether) {
  const uint64_t far = kMany + 1;  // kMany before it have not ended
  EXPECT_EQ(looks_.LookFor(far), EndLooks::Tell::kTogether) << "though they were told at once";
  EXPECT_EQ(looks_.LookFor(far), EndLooks::Tell::kAsBefore) << "the controller knows";
  NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "that would take the look back";
  NoteEnds(1);
  EXPECT_EQ(looks_.LookFor(far + kMany + 1), EndLooks::Tell::kTogether) << "the first has ended";
}

TEST_F(EndLooksTest, ANodeNearByIsToldAtOnceAsEachAfterIt) {
  EXPECT_EQ(looks_.LookFor(kMany), EndLooks::Tell::kAsBefore) << "ends are told at once";
  NoteEnds(kMany - 1);
  EXPECT_FALSE(looks_.MayTellTogether()) << "it has not ended";
  NoteEnds(1);
  EXPECT_FALSE(looks_.MayTellTogether()) << "ends during a look do not count";
  NoteEnds(kMany);
  ASSERT_TRUE(looks_.MayTellTogether());
  EXPECT_EQ(looks_.LookFor(3 * kMany), EndLooks::Tell::kAtOnce);
}

TEST_F(EndLooksTest, TwoNodesThatAreLookedForAreToldAtOnce) {
  EXPECT_EQ(looks_.LookFor(2 * kMany), EndLooks::Tell::kTogether);
  EXPECT_EQ(looks_.LookFor(3 * kMany), EndLooks::Tell::kAtOnce);
  EXPECT_EQ(looks_.LookFor(4 * kMany), EndLooks::Tell::kAsBefore);
  NoteEnds(2 * kMany);
  EXPECT_EQ(looks_.LookFor(5 * kMany), EndLooks::Tell::kAsBefore) << "two are left";
  NoteEnds(2 * kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "one is left";
  NoteEnds(kMany);
  EXPECT_EQ(looks_.LookFor(7 * kMany), EndLooks::Tell::kTogether);
}

TEST_F(EndLooksTest, ALookForEveryEndIsOneForEachNode) {
  EXPECT_EQ(looks_.LookFor(2 * kMany), EndLooks::Tell::kTogether);
  EXPECT_TRUE(looks_.Begin());
  EXPECT_EQ(looks_.LookFor(3 * kMany), EndLooks::Tell::kAsBefore);
  NoteEnds(2 * kMany);
  looks_.End();
  EXPECT_FALSE(looks_.MayTellTogether()) << "one is still looked for";
  EXPECT_EQ(looks_.LookFor(3 * kMany), EndLooks::Tell::kAsBefore);
}

TEST(EndLooksOfACallerTest, ACallerThatSaysNothingIsToldAtOnce) {
  EndLooks looks;
  looks.NoteEnded(1, kMany);
  EXPECT_FALSE(looks.MayTellTogether());
}

}  // namespace
}  // namespace gangway::client
