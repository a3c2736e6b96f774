// EventLoop: order, timers, round ends, stop.
#include "gangway/base/executor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

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

TEST(EventLoopTest, ATimerWakesTheLoopThoughNothingElseDoes) {
  for (const bool has_poller : {false, true}) {
    EventLoop loop("test");
    if (has_poller) {
      ASSERT_TRUE(loop.poller().ok());
    }
    for (int i = 0; i < 20; ++i) {
      std::promise<void> done;
      loop.PostAt(Clock::now() + milliseconds(1), [&done] { done.set_value(); });
      ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
    }
  }
}

TEST(EventLoopTest, TheEarliestOfTheTimersSaysWhenTheLoopWakes) {
  for (const bool has_poller : {false, true}) {
    EventLoop loop("test");
    if (has_poller) {
      ASSERT_TRUE(loop.poller().ok());
    }
    for (int i = 0; i < 20; ++i) {
      std::promise<void> done;
      loop.PostAt(Clock::now() + std::chrono::hours(1), [] {});
      loop.PostAt(Clock::now() + milliseconds(1), [&done] { done.set_value(); });
      loop.PostAt(Clock::now() + std::chrono::hours(2), [] {});
      ASSERT_EQ(done.get_future().wait_for(milliseconds(5000)), std::future_status::ready);
    }
  }
}

// A thread of this process, as the kernel sees it.
class SeenThread {
 public:
  explicit SeenThread(pid_t id) : directory_(absl::StrCat("/proc/self/task/", id, "/")) {}

  void AwaitSleep() const {
    for (int i = 0; i < 5000 && !Contains("State:\tS"); ++i)
      std::this_thread::sleep_for(milliseconds(1));
  }
  int sleeps() const {
    constexpr std::string_view kName = "\nvoluntary_ctxt_switches:\t";
    const std::string status = Status();
    const size_t at = status.find(kName);
    EXPECT_NE(at, std::string::npos) << status;
    return std::stoi(status.substr(at + kName.size()));
  }

 private:
  std::string Status() const {
    std::ifstream file(directory_ + "status");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool Contains(std::string_view text) const { return Status().find(text) != std::string::npos; }

  const std::string directory_;
};

TEST(EventLoopTest, ToSetATimerWakesNoLoopThatSleepsInItsPoller) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  std::promise<pid_t> id;
  loop.Post([&id] { id.set_value(gettid()); });
  const SeenThread thread(id.get_future().get());
  constexpr int kTimers = 100;
  thread.AwaitSleep();
  const int before = thread.sleeps();
  for (int i = 0; i < kTimers; ++i) {  // each is the earliest
    loop.PostAt(Clock::now() + std::chrono::hours(2 * kTimers - i), [] {});
    thread.AwaitSleep();
  }
  EXPECT_LT(thread.sleeps() - before, kTimers / 2);
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
