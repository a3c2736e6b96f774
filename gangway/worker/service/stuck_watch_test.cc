// StuckWatch: which calls are long, by counters alone.
#include "gangway/worker/service/stuck_watch.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

TEST(StuckWatchTest, OnlyOneCallThatDoesNotEndIsStuck) {
  StuckWatch watch(milliseconds(3000));
  StuckWatch::Time now{};
  auto look = [&](uint64_t first, uint64_t second) {
    now += milliseconds(500);
    return watch.Look({{first, 5}, {second, 9}}, now);
  };
  // Device 0 is in call after call, device 1 idle: never stuck, however long.
  for (uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(look(2 * i + 1, 4).empty());
  // Device 1 does not come back.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(look(100, 5).empty()) << i;
  auto stuck = look(100, 5);
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].device, 1u);
  EXPECT_EQ(stuck[0].gang, 9u);
  EXPECT_EQ(stuck[0].duration, milliseconds(3000));
  EXPECT_EQ(look(100, 5)[0].duration, milliseconds(3500));
  EXPECT_TRUE(look(100, 6).empty()) << "it came back";
  EXPECT_TRUE(look(100, 7).empty()) << "into the next";
}

}  // namespace
}  // namespace gangway::worker
