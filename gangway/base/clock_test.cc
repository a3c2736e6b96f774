// Ages of what other threads begin.
#include "gangway/base/clock.h"

#include <gtest/gtest.h>

namespace gangway {
namespace {

TEST(Clock, WhatBeganAfterTheLookHasNoAge) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(ElapsedMs(now - std::chrono::milliseconds(1500), now), 1500u);
  EXPECT_EQ(ElapsedMs(now - std::chrono::microseconds(999), now), 0u);
  EXPECT_EQ(ElapsedMs(now, now), 0u);
  EXPECT_EQ(ElapsedMs(now + std::chrono::microseconds(1), now), 0u);
  EXPECT_EQ(ElapsedMs(now + std::chrono::seconds(10), now), 0u);
}

}  // namespace
}  // namespace gangway
