// Tests of late_ends.h.
#include "gangway/worker/service/launch/late_ends.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

TEST(LateEndsTest, WhatHurriesWakesTheLoop) {
  LateEnds late;
  for (uint64_t i = 1; i < 100; ++i) EXPECT_TRUE(late.Wakes(Ordinal(i), true));
}

TEST(LateEndsTest, OneOfEightEndsWakesTheLoop_TheSameOnAllWorkers) {
  LateEnds here, there;
  EXPECT_FALSE(here.Wakes(Ordinal(6), false));  // before the other worker has anything
  for (uint64_t i = 7; i < 100; ++i) {
    EXPECT_EQ(here.Wakes(Ordinal(i), false), i % LateEnds::kMax == 0) << i;
    EXPECT_EQ(there.Wakes(Ordinal(i), false), i % LateEnds::kMax == 0) << i;
  }
}

// Of many sessions, this worker may have the odd ordinals only.
TEST(LateEndsTest, NoMoreThanSevenAreHeldWhateverTheirOrdinals) {
  LateEnds late;
  uint32_t held = 0;
  for (uint64_t i = 1; i < 200; i += 2) {
    held = late.Wakes(Ordinal(i), false) ? 0 : held + 1;
    EXPECT_LT(held, LateEnds::kMax);
  }
}

TEST(LateEndsTest, TheCountBeginsAgainBehindWhatHurried) {
  LateEnds late;
  for (uint64_t i = 1; i < 15; i += 2) EXPECT_FALSE(late.Wakes(Ordinal(i), false));
  EXPECT_TRUE(late.Wakes(Ordinal(15), true));
  EXPECT_FALSE(late.Wakes(Ordinal(17), false));
}

}  // namespace
}  // namespace gangway::worker
