// Tests of silence.h.
#include "gangway/transport/bulk/silence.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

using std::chrono::seconds;

constexpr seconds kLimit{5};

TEST(Silence, NothingAwaitedIsNoSilence) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  EXPECT_FALSE(silence.IsTooLong(start + seconds(1000), kLimit));
  silence.Await(start);
  silence.Rest();
  EXPECT_FALSE(silence.awaits());
  EXPECT_FALSE(silence.IsTooLong(start + seconds(1000), kLimit));
}

TEST(Silence, ItBeginsWithTheLatestSignOfLifeOrTheFirstWait_TM1) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  silence.Hear(start);
  silence.Await(start + seconds(100));
  silence.Await(start + seconds(104));  // does not move the beginning
  EXPECT_FALSE(silence.IsTooLong(start + seconds(104), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(105), kLimit));
  silence.Hear(start + seconds(103));
  silence.Hear(start + seconds(101));  // the latest counts
  EXPECT_FALSE(silence.IsTooLong(start + seconds(107), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(108), kLimit));
  silence.Rest();
  silence.Await(start + seconds(200));
  EXPECT_FALSE(silence.IsTooLong(start + seconds(204), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(205), kLimit));
}

// Not even if it stands still again and again.
TEST(Silence, TimeInWhichThisProcessStoodStillIsNone) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  silence.Hear(start);
  silence.Await(start);
  silence.Skip(seconds(2), start + seconds(3));
  EXPECT_FALSE(silence.IsTooLong(start + seconds(6), kLimit));
  silence.Skip(seconds(2), start + seconds(8));
  EXPECT_FALSE(silence.IsTooLong(start + seconds(8), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(9), kLimit));
}

TEST(Silence, WhatBeganWhileThisProcessStoodStillBeginsAtItsEnd) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  silence.Await(start + seconds(9));
  silence.Skip(seconds(10), start + seconds(10));
  EXPECT_FALSE(silence.IsTooLong(start + seconds(14), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(15), kLimit));
}

TEST(Looks, ALateLookIsNoticedOnceAndAFirstOneAlways) {
  const Clock::time_point start = Clock::now();
  Looks looks;
  EXPECT_GT(looks.StoodStill(start, seconds(1)), Clock::duration()) << "nothing was watched before";
  EXPECT_EQ(looks.StoodStill(start + seconds(2), seconds(1)), Clock::duration());
  EXPECT_EQ(looks.StoodStill(start + seconds(5), seconds(1)), seconds(3));
  EXPECT_EQ(looks.StoodStill(start + seconds(6), seconds(1)), Clock::duration());
}

}  // namespace
}  // namespace gangway::transport
