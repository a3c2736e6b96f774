// Since when nodes wait, and which of them have waited for too long.
#include "gangway/scheduler/core/waits.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

using std::chrono::milliseconds;

class WaitsTest : public ::testing::Test {
 protected:
  static IslandConfig Config() {
    IslandConfig config;
    config.memory_wait_max = milliseconds(100);
    config.upload_wait_max = milliseconds(50);
    config.worker_wait_max = milliseconds(300);
    return config;
  }
  static Time At(int ms) { return kStart + milliseconds(ms); }

  Waits waits_{Config()};
};

TEST_F(WaitsTest, ThoseAreDueThatHaveWaitedForTheirLimit) {
  waits_.Begin(WaitFor::kMemory, Ordinal(2), At(0));
  waits_.Begin(WaitFor::kMemory, Ordinal(1), At(10));
  waits_.Begin(WaitFor::kMemory, Ordinal(2), At(90));  // it waits already
  EXPECT_TRUE(waits_.Due(WaitFor::kMemory, At(99)).empty());
  EXPECT_EQ(waits_.Due(WaitFor::kMemory, At(100)), std::vector{Ordinal(2)});
  EXPECT_EQ(waits_.Due(WaitFor::kMemory, At(110)), (std::vector{Ordinal(2), Ordinal(1)}));
  EXPECT_TRUE(waits_.Due(WaitFor::kBytes, At(1000)).empty());
}

TEST_F(WaitsTest, TheNextDeadlineIsTheEarliestOfAllKinds) {
  EXPECT_EQ(waits_.next_deadline(), std::nullopt);
  waits_.Begin(WaitFor::kWorkers, Ordinal(1), At(0));
  EXPECT_EQ(waits_.next_deadline(), At(300));
  waits_.Begin(WaitFor::kBytes, Ordinal(2), At(20));
  EXPECT_EQ(waits_.next_deadline(), At(70));
  waits_.Restart(WaitFor::kBytes, Ordinal(2), At(60));
  EXPECT_EQ(waits_.next_deadline(), At(110));
  EXPECT_EQ(waits_.Since(WaitFor::kBytes, Ordinal(2)), At(60));
  EXPECT_TRUE(waits_.End(WaitFor::kBytes, Ordinal(2)));
  EXPECT_EQ(waits_.next_deadline(), At(300));
}

TEST_F(WaitsTest, WhatDoesNotWaitIsNotRestarted) {
  waits_.Restart(WaitFor::kBytes, Ordinal(1), At(0));
  EXPECT_EQ(waits_.Since(WaitFor::kBytes, Ordinal(1)), std::nullopt);
  EXPECT_FALSE(waits_.End(WaitFor::kBytes, Ordinal(1)));
  EXPECT_EQ(waits_.next_deadline(), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
