// EndLooks: when a session lets its ends be told together.
#include "gangway/client/end_looks.h"

#include <gtest/gtest.h>

namespace gangway::client {
namespace {

constexpr uint64_t kMany = EndLooks::kUnlookedEndsMax;

class EndLooksTest : public ::testing::Test {
 protected:
  void SetUp() override { looks_.End(); }  // the caller's

  EndLooks looks_;
};

TEST_F(EndLooksTest, ManyEndsWithoutALookAreToldTogetherFromThenOn) {
  looks_.NoteEnds(kMany - 1);
  EXPECT_FALSE(looks_.MayTellTogether());
  looks_.NoteEnds(1);
  EXPECT_TRUE(looks_.MayTellTogether());
  looks_.NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "the controller knows";
}

TEST_F(EndLooksTest, TheNextLookTakesThatBackOnce) {
  EXPECT_FALSE(looks_.Begin()) << "they are told at once";
  looks_.End();
  looks_.NoteEnds(kMany);
  ASSERT_TRUE(looks_.MayTellTogether());
  EXPECT_TRUE(looks_.Begin());
  EXPECT_FALSE(looks_.Begin());
  looks_.End();
  looks_.End();
  EXPECT_FALSE(looks_.MayTellTogether());
  looks_.NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST_F(EndLooksTest, EndsDuringALookDoNotCount) {
  looks_.Begin();
  looks_.NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether());
  looks_.End();
  EXPECT_FALSE(looks_.MayTellTogether());
  looks_.NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST_F(EndLooksTest, ALookMayEndBeforeItBegins) {
  looks_.End();
  looks_.NoteEnds(kMany);
  EXPECT_FALSE(looks_.MayTellTogether()) << "it is about to begin";
  EXPECT_FALSE(looks_.Begin());
  looks_.NoteEnds(kMany);
  EXPECT_TRUE(looks_.MayTellTogether());
}

TEST(EndLooksOfACallerTest, ACallerThatSaysNothingIsToldAtOnce) {
  EndLooks looks;
  looks.NoteEnds(kMany);
  EXPECT_FALSE(looks.MayTellTogether());
}

}  // namespace
}  // namespace gangway::client
