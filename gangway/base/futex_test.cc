// A thread that waits for a word is woken by a change of it, by a wake for what it waits for, and by nothing else.
#include "gangway/base/futex.h"

#include <gtest/gtest.h>

#include "gangway/base/clock.h"
#include "gangway/base/thread.h"

namespace gangway {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatience{20'000};
constexpr FutexBits kMine = 4, kOthers = ~kMine;

TEST(FutexTest, AWakeForOthersLeavesAThreadAsleep) {
  FutexWord word{7};
  std::atomic<bool> is_awake = false;
  const auto began = Clock::now();
  Thread waits("waits", [&] {
    EXPECT_TRUE(FutexWait(word, 7, kPatience, kMine));
    is_awake = true;
  });
  while (Clock::now() - began < milliseconds(100)) {
    FutexWake(word, kOthers);
    YieldCore();
  }
  EXPECT_FALSE(is_awake);
  while (!is_awake) {
    FutexWake(word, kMine | 1);
    YieldCore();
  }
  waits.Join();
  EXPECT_LT(Clock::now() - began, kPatience);
}

TEST(FutexTest, AWakeForAllWakesWhoeverWaits) {
  FutexWord word{7};
  std::atomic<int> awake = 0;
  const auto began = Clock::now();
  Thread one("one", [&] {
    FutexWait(word, 7, kPatience, kMine);
    ++awake;
  });
  Thread any("any", [&] {
    FutexWait(word, 7, kPatience);
    ++awake;
  });
  while (awake != 2) {
    FutexWake(word);
    YieldCore();
  }
  one.Join();
  any.Join();
  EXPECT_LT(Clock::now() - began, kPatience);
}

TEST(FutexTest, AnotherValueAndTheLimitEndAWait) {
  FutexWord word{7};
  const auto began = Clock::now();
  EXPECT_TRUE(FutexWait(word, 8, kPatience, kMine));
  EXPECT_LT(Clock::now() - began, kPatience);
  EXPECT_FALSE(FutexWait(word, 7, milliseconds(20), kMine));
  EXPECT_GE(Clock::now() - began, milliseconds(20));
}

}  // namespace
}  // namespace gangway
