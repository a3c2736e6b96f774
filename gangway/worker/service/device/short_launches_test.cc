// Tests of short_launches.h.
#include "gangway/worker/service/device/short_launches.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kTwo = microseconds(2);

void NoteRuns(LearnedTime& time, int count, nanoseconds each) {
  for (int i = 0; i < count; ++i) time.Note(each);
}

TEST(LearnedTime, OnlyRunsTellThatAProgramIsShort) {
  LearnedTime time;
  EXPECT_EQ(time.IfShort(), std::nullopt) << "nothing is known";
  NoteRuns(time, kShortRunsFirst - 1, kTwo);
  EXPECT_EQ(time.IfShort(), std::nullopt);
  time.Note(kTwo);
  EXPECT_EQ(time.IfShort(), kTwo);
}

TEST(LearnedTime, ASurpriseMakesAProgramLongAtOnceUntilItIsMadeUpFor) {
  LearnedTime time;
  NoteRuns(time, 100, kTwo);
  time.Note(milliseconds(1));
  EXPECT_EQ(time.IfShort(), std::nullopt);
  const int needed = static_cast<int>(milliseconds(1) / kShortLaunch);
  NoteRuns(time, needed - 1, kTwo);
  EXPECT_EQ(time.IfShort(), std::nullopt);
  time.Note(kTwo);
  ASSERT_TRUE(time.IfShort());
  EXPECT_LT(*time.IfShort(), kShortLaunch);
}

// What a program of any habits may cost the loop: it runs there whenever it counts as short.
TEST(LearnedTime, TheLoopSpendsTwiceTheLimitPerRunAtMost) {
  for (const int between : {1, 3, 10, 30, 100, 1000}) {
    LearnedTime time;
    nanoseconds on_loop{0};
    constexpr int kRuns = 200'000;
    for (int i = 0; i < kRuns; ++i) {
      const nanoseconds ran = i % between == between - 1 ? milliseconds(2) : nanoseconds(kTwo);
      if (time.IfShort()) on_loop += ran;
      time.Note(ran);
    }
    EXPECT_LE(on_loop, 2 * kShortLaunch * kRuns) << "a long run after " << between;
  }
}

TEST(ShortLaunches, RunsOfAllDevicesCountOneAfterTheOther) {
  const ShortLaunches launches;
  EXPECT_FALSE(launches.MayRun(std::nullopt, 1));
  EXPECT_TRUE(launches.MayRun(kTwo, 1));
  EXPECT_TRUE(launches.MayRun(microseconds(6), 8));
  EXPECT_FALSE(launches.MayRun(microseconds(7), 8));
  EXPECT_TRUE(launches.MayRun(kShortLaunch - nanoseconds(1), 1));
  EXPECT_FALSE(launches.MayRun(kShortLaunch, 1));
  EXPECT_FALSE(launches.MayRun(nanoseconds(1), 1000));
}

TEST(ShortLaunches, ARoundHasItsLimit) {
  for (const nanoseconds round_max : {kShortRound, kShortSharedRound}) {
    ShortLaunches launches(round_max);
    launches.BeginRound(1);
    launches.Spend(round_max - kTwo);
    launches.BeginRound(1);
    EXPECT_TRUE(launches.MayRun(kTwo, 1));
    EXPECT_FALSE(launches.MayRun(kTwo, 2));
    launches.Spend(milliseconds(3));  // a surprise
    EXPECT_FALSE(launches.MayRun(nanoseconds(1), 1));
    launches.BeginRound(2);
    EXPECT_TRUE(launches.MayRun(kTwo, 2));
  }
}

}  // namespace
}  // namespace gangway::worker
