// Tests of stuck_watch.h.
#include "gangway/worker/service/device/stuck_watch.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

TEST(StuckWatchTest, OnlyOneCallThatDoesNotEndIsStuck) {
  StuckWatch watch(milliseconds(3000));
  StuckWatch::Time now{};
  auto look = [&](uint64_t first, uint64_t second) {
    now += milliseconds(500);
    return watch.Look({{first, Ordinal(5)}, {second, Ordinal(9)}}, now);
  };
  // Device 0 makes one call after another and device 1 is idle: neither is ever stuck.
  for (uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(look(2 * i + 1, 4).empty());
  // A call on device 1 does not return.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(look(100, 5).empty()) << i;
  auto stuck = look(100, 5);
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].device, 1u);
  EXPECT_EQ(stuck[0].gang, Ordinal(9));
  EXPECT_EQ(stuck[0].duration, milliseconds(3000));
  EXPECT_EQ(look(100, 5)[0].duration, milliseconds(3500));
  EXPECT_TRUE(look(100, 6).empty()) << "the call returned";
  EXPECT_TRUE(look(100, 7).empty()) << "the next call has just begun";
}

}  // namespace
}  // namespace gangway::worker
