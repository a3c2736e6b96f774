// EventLoop: order, timers, round ends, stop.
#include "gangway/base/executor.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/serving_thread.h"

namespace gangway {
namespace {

using std::chrono::milliseconds;

TEST(EventLoopTest, RunsTasksInTheOrderOfThePosts) {
  EventLoop loop("test");
  std::vector<int> seen;
  std::promise<void> done;
  for (int i = 0; i < 1000; ++i) loop.Post([&seen, i] { seen.push_back(i); });
  loop.Post([&done] { done.set_value(); });
  ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

TEST(EventLoopTest, ItsThreadServes) {
  EventLoop loop("test");
  std::promise<bool> serves;
  loop.Post([&] { serves.set_value(IsServing()); });
  auto answer = serves.get_future();
  ASSERT_EQ(answer.wait_for(milliseconds(5000)), std::future_status::ready);
  EXPECT_TRUE(answer.get());
  EXPECT_FALSE(IsServing());
}

TEST(EventLoopTest, TimersFireInOrderOfTimeAndCanBeCancelled) {
  EventLoop loop("test");
  std::vector<int> seen;
  std::promise<void> done;
  auto now = Clock::now();
  loop.PostAt(now + milliseconds(30), [&] {
    seen.push_back(3);
    done.set_value();
  });
  loop.PostAt(now + milliseconds(10), [&] { seen.push_back(1); });
  uint64_t cancelled = loop.PostAt(now + milliseconds(20), [&] { seen.push_back(2); });
  loop.Cancel(cancelled);
  ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
  loop.Stop();
  EXPECT_EQ(seen, (std::vector<int>{1, 3}));
}

TEST(EventLoopTest, WhatIsPostedForSoonRunsThoughNothingElseWakesTheLoop) {
  for (const bool has_poller : {false, true}) {
    EventLoop loop("test");
    if (has_poller) {
      ASSERT_TRUE(loop.poller().ok());
    }
    for (int i = 0; i < 20; ++i) {
      std::promise<void> done;
      loop.PostSoon([&done] { done.set_value(); });
      ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
    }
  }
}

// Whether a task that is posted for soon is left in the queue of the loop, which is about to sleep, or sleeps.
bool IsLeft(EventLoop& loop) {
  std::promise<void> soon, posted;
  std::future<void> has_run = soon.get_future();
  loop.PostSoon([&] { soon.set_value(); }, milliseconds(3'600'000));
  const bool is_left = has_run.wait_for(milliseconds(300)) == std::future_status::timeout;
  loop.Post([&] {
    EXPECT_EQ(has_run.wait_for(milliseconds(0)), std::future_status::ready) << "out of order";
    posted.set_value();
  });
  posted.get_future().wait();
  return is_left;
}

TEST(EventLoopTest, WhatIsPostedForSoonWakesNoLoopThatSleeps) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  bool is_left = false;
  for (int i = 0; i < 10 && !is_left; ++i) is_left = IsLeft(loop);
  EXPECT_TRUE(is_left);
}

TEST(EventLoopTest, TheEarliestOfWhatIsPostedForSoonSaysWhenTheLoopWakes) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  for (int i = 0; i < 20; ++i) {
    std::promise<void> late;
    loop.PostSoon([&late] { late.set_value(); }, milliseconds(3'600'000));
    loop.PostSoon([] {});
    ASSERT_EQ(late.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
  }
}

TEST(EventLoopTest, TasksPostedForSoonKeepTheOrderOfThePosts) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  std::vector<int> seen;
  std::promise<void> done;
  for (int i = 0; i < 1000; ++i) {
    const auto task = [&seen, i] { seen.push_back(i); };
    i % 3 == 0 ? loop.Post(task) : loop.PostSoon(task);
  }
  loop.PostSoon([&done] { done.set_value(); });
  ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

TEST(EventLoopTest, StopRunsWhatWasPostedForSoon) {
  bool has_run = false;
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  loop.PostSoon([&has_run] { has_run = true; });
  loop.Stop();
  EXPECT_TRUE(has_run);
}

TEST(EventLoopTest, RoundEndRunsAfterTheTasks) {
  EventLoop loop("test");
  int tasks = 0;
  std::promise<int> at_flush;
  bool flushed = false;
  loop.AddRoundEnd([&] {
    if (tasks > 0 && !flushed) {
      flushed = true;
      at_flush.set_value(tasks);
    }
  });
  loop.Post([&] { ++tasks; });
  auto future = at_flush.get_future();
  ASSERT_EQ(future.wait_for(milliseconds(5000)), std::future_status::ready);
  EXPECT_EQ(future.get(), 1);
  loop.Stop();
}

TEST(EventLoopTest, WhatIsLeftToTheEndOfARoundRunsOnceAfterIt) {
  EventLoop loop("test");
  std::string order;
  std::promise<void> done;
  EXPECT_EQ(EventLoop::Current(), nullptr);
  loop.AddRoundEnd([&] {
    if (!order.empty()) order += 'e';
  });
  loop.Post([&] {
    EXPECT_EQ(EventLoop::Current(), &loop);
    order += 'a';
    loop.AtRoundEnd([&, round = loop.round()] {
      EXPECT_EQ(loop.round(), round);
      order += 'z';
      loop.AtRoundEnd([&] { order += 'y'; });
    });
    loop.Post([&] {
      order += 'b';
      loop.Post([&] { done.set_value(); });
    });
    order += 'c';
  });
  ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
  loop.Stop();
  EXPECT_EQ(order.substr(0, 7), "acezybe");
}

TEST(EventLoopTest, StopRunsWhatIsQueuedAndDropsLaterPosts) {
  EventLoop loop("test");
  int count = 0;
  for (int i = 0; i < 100; ++i) loop.Post([&] { ++count; });
  loop.Stop();
  loop.Post([&] { ++count; });
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace gangway
