// Unit tests of DevicePool.
#include "gangway/worker/service/device/device_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

namespace gangway::worker {
namespace {

TEST(DevicePool, ShortTasksShareAFewThreads) {
  constexpr int kTasks = 10'000;
  std::atomic<int> running = 0, most = 0;
  std::latch ended(kTasks);
  DevicePool pool(2);
  for (int i = 0; i < kTasks; ++i) {
    pool.Run([&] {
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
      --running;
      ended.count_down();
    });
  }
  ended.wait();
  // A loaded machine may suspend both for a millisecond, and then others run, too.
  EXPECT_LT(pool.threads(), 100U);
  EXPECT_GE(most, 1);
}

TEST(DevicePool, TasksThatWaitForOneAnotherAllRun) {
  constexpr int kTasks = 200;
  DevicePool pool(2);
  for (int round = 0; round < 2; ++round) {
    std::latch all(kTasks), ended(kTasks);
    for (int i = 0; i < kTasks; ++i) {
      pool.Run([&] {
        all.arrive_and_wait();
        ended.count_down();
      });
    }
    ended.wait();
    EXPECT_GE(pool.threads(), static_cast<size_t>(kTasks));
    EXPECT_LE(pool.threads(), static_cast<size_t>(kTasks + 2)) << "threads serve again";
  }
}

TEST(DevicePool, ATaskBehindOnesThatBlockRuns) {
  DevicePool pool(1);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::promise<void> blocked_ended, ran;
  pool.Run([&] {
    released.wait();
    blocked_ended.set_value();
  });
  pool.Run([&] { ran.set_value(); });
  ran.get_future().wait();
  release.set_value();
  blocked_ended.get_future().wait();
}

TEST(DevicePool, ItsEndWaitsForTheTaskThatRuns) {
  std::atomic<bool> ended = false;
  std::promise<void> started;
  {
    DevicePool pool(1);
    pool.Run([&] {
      started.set_value();
      std::this_thread::yield();
      ended = true;
    });
    started.get_future().wait();
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace gangway::worker
