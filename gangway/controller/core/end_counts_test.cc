// Tests of EndCounts: what is counted, forgotten and bounded.
#include "gangway/controller/core/end_counts.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gangway::controller {
namespace {

using std::chrono::milliseconds;

constexpr Time kStart = Time() + std::chrono::hours(1);

TEST(EndCountsTest, AThingIsForgottenAfterItsLastEnd) {
  EndCounts counts(milliseconds(10), 3);
  EXPECT_TRUE(counts.empty());
  EXPECT_EQ(counts.Add("a", kStart), 1);
  EXPECT_EQ(counts.Add("a", kStart + milliseconds(9)), 2);
  EXPECT_EQ(counts.LastOf("a"), kStart + milliseconds(9));
  EXPECT_EQ(counts.CountOf("a", kStart + milliseconds(18)), 2);
  EXPECT_EQ(counts.CountOf("a", kStart + milliseconds(19)), 0);
  EXPECT_EQ(counts.Add("a", kStart + milliseconds(19)), 1) << "the old ends do not come back";
  EXPECT_EQ(counts.CountOf("b", kStart), 0);
}

TEST(EndCountsTest, EndsAreTakenBack) {
  EndCounts counts(milliseconds(10), 3);
  counts.Add("a", kStart);
  counts.Add("a", kStart);
  counts.TakeBack("a");
  EXPECT_EQ(counts.CountOf("a", kStart), 1);
  counts.TakeBack("a");
  counts.TakeBack("a");
  EXPECT_TRUE(counts.empty());
  counts.Add("b", kStart);
  EXPECT_TRUE(counts.Erase("b"));
  EXPECT_FALSE(counts.Erase("b"));
}

TEST(EndCountsTest, TheOldestMakesRoom_TM2) {
  EndCounts counts(milliseconds(1000), 3);
  for (int i = 0; i < 10000; ++i)
    counts.Add(absl::StrCat(i % 4 == 0 ? 0 : i), kStart + milliseconds(i / 100));
  int known = 0;
  for (int i = 0; i < 10000; ++i) known += counts.CountOf(absl::StrCat(i), kStart) > 0 ? 1 : 0;
  EXPECT_EQ(known, 3);
}

TEST(EndCountsTest, ABeginningIsFound) {
  EndCounts counts(milliseconds(10), 3);
  EXPECT_FALSE(counts.MayKnow("12: "));
  counts.Add("120: a", kStart);
  EXPECT_FALSE(counts.MayKnow("12: "));
  counts.Add("12: b", kStart);
  EXPECT_TRUE(counts.MayKnow("12: "));
  EXPECT_FALSE(counts.MayKnow("2: "));
}

TEST(EndCountsTest, WithoutMemoryNothingIsCounted) {
  EndCounts counts(milliseconds(0), 3);
  EXPECT_EQ(counts.Add("a", kStart), 0);
  EXPECT_TRUE(counts.empty());
}

}  // namespace
}  // namespace gangway::controller
