// Tests of idle_watch.h.
#include "gangway/worker/service/device/idle_watch.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;

TEST(IdleWatchTest, OnlyDevicesWithoutCallsForTheWholeTimeAreIdle) {
  IdleWatch watch(milliseconds(2000));
  IdleWatch::Time now{};
  int in_flight = 0;
  auto look = [&](uint64_t first, uint64_t second) {
    now += milliseconds(500);
    return watch.Look({{first, Ordinal(5)}, {second, Ordinal(9), in_flight}}, now);
  };
  for (uint64_t i = 0; i < 10; ++i) EXPECT_FALSE(look(i, 4)) << "a device makes calls";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(look(9, 4)) << i;
  EXPECT_TRUE(look(9, 4));
  EXPECT_TRUE(look(9, 4));
  EXPECT_FALSE(look(9, 5)) << "another device began a call";
  in_flight = 1;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(look(9, 6)) << "a program takes long";
  in_flight = 0;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(look(9, 6)) << i;
  EXPECT_TRUE(look(9, 6));
}

}  // namespace
}  // namespace gangway::worker
