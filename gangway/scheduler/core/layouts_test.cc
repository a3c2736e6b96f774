// What a layout says of a list of devices, and that equal lists share one.
#include "gangway/scheduler/core/layouts.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

TEST(LayoutsTest, ALayoutNamesTheShardsHere) {
  const TwoWorkerFleet two;
  const LayoutRef all = two.LayoutOf({3, 0, 2});
  EXPECT_EQ(all->devices, DevicesOf({3, 0, 2}));
  EXPECT_EQ(all->sorted, DevicesOf({0, 2, 3}));
  EXPECT_EQ(all->workers, (std::vector<uint32_t>{1, 0}));
  EXPECT_TRUE(all->shards.empty());
  EXPECT_FALSE(all->spans);
  EXPECT_EQ(all->IndexOf(2), 2u);
  EXPECT_EQ(all->IndexOf(3), std::nullopt);
}

TEST(LayoutsTest, ALayoutLeavesOutDevicesOfOtherIslandsAndRepeats) {
  const TwoWorkerFleet two;
  const LayoutRef some = two.LayoutOf({0, 9, 3, 3, 1});
  EXPECT_EQ(some->devices, DevicesOf({0, 3, 1}));
  EXPECT_EQ(some->shards, (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_TRUE(some->spans);
  EXPECT_EQ(some->IndexOf(1), std::nullopt);
  EXPECT_EQ(some->IndexOf(2), 1u);
  EXPECT_EQ(some->IndexOf(3), std::nullopt);
  EXPECT_EQ(some->IndexOf(4), 2u);
  EXPECT_TRUE(two.LayoutOf({9})->workers.empty());
}

TEST(LayoutsTest, EqualListsShareALayoutForAsLongAsItIsUsed) {
  const TwoWorkerFleet two;
  LayoutRef one = two.LayoutOf({0, 2});
  const uint64_t number = one->number;
  EXPECT_EQ(two.LayoutOf({0, 2}), one);
  EXPECT_NE(two.LayoutOf({2, 0}), one);
  EXPECT_EQ(two.layouts.size(), 1u);
  one.reset();
  EXPECT_EQ(two.layouts.size(), 0u);
  EXPECT_NE(two.LayoutOf({0, 2})->number, number);  // which may still be in a queue
  EXPECT_EQ(two.LayoutOf({}), Layouts::Empty());
}

}  // namespace
}  // namespace gangway::scheduler
