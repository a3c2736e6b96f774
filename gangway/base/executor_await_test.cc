// EventLoop::Await: which thread runs the loop while others wait, and how its turn is handed over.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/loop_wait.h"
#include "gangway/base/poller_gate.h"
#include "gangway/base/spin.h"

namespace gangway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{20};

// A loop that can be led, and threads that wait on it.
class AwaitTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(loop_.poller().ok()); }

  // The thread that runs a task posted now.
  std::thread::id Runner() {
    std::promise<std::thread::id> runner;
    loop_.Post([&] {
      EXPECT_TRUE(loop_.IsLoopThread());
      runner.set_value(std::this_thread::get_id());
    });
    return runner.get_future().get();
  }
  std::thread::id OwnThread() { return Runner(); }  // while nothing waits

  // Whether a task posted soon runs on `thread`.
  bool RunsOn(std::thread::id thread) {
    const auto deadline = Clock::now() + kLimit;
    while (Clock::now() < deadline) {
      if (Runner() == thread) return true;
    }
    return false;
  }

  // A thread that waits for `wait`.
  std::jthread Waiting(const std::shared_ptr<LoopWait>& wait) {
    return std::jthread([this, wait] {
      EXPECT_TRUE(loop_.Await(wait, Clock::now() + kLimit));
      EXPECT_EQ(EventLoop::Current(), nullptr);
    });
  }

  EventLoop loop_{"test"};
};

TEST_F(AwaitTest, AThreadThatWaitsRunsTheLoop) {
  const auto own = OwnThread();
  const auto wait = std::make_shared<LoopWait>();
  {
    const std::jthread waiting = Waiting(wait);
    EXPECT_TRUE(RunsOn(waiting.get_id()));
    loop_.Post([wait] { wait->End(); });
  }
  EXPECT_EQ(Runner(), own);
}

TEST_F(AwaitTest, WhatIsWatchedIsCalledOnTheThreadThatWaits) {
  struct Watched : Poller::Watched {
    void OnReady(uint32_t) override {
      EXPECT_TRUE(loop->IsLoopThread());
      loop->Post([this] {
        ran_on = std::this_thread::get_id();
        wait->End();
      });
    }
    EventLoop* loop = nullptr;
    std::shared_ptr<LoopWait> wait = std::make_shared<LoopWait>();
    std::atomic<std::thread::id> ran_on;
  };
  const FileDescriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto watched = std::make_shared<Watched>();
  watched->loop = &loop_;
  const auto poller = *loop_.poller();
  const uint64_t id = poller->NextId();
  ASSERT_TRUE(poller->Watch(id, event.get(), EPOLLIN | EPOLLET, watched).ok());
  std::thread::id thread;
  {
    const std::jthread waiting = Waiting(watched->wait);
    thread = waiting.get_id();
    EXPECT_TRUE(RunsOn(thread));
    const uint64_t one = 1;
    ASSERT_EQ(write(event.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  EXPECT_EQ(watched->ran_on.load(), thread);
  poller->Forget(id, event.get());
}

TEST_F(AwaitTest, OneThatIsDoneHandsOverToAnother) {
  const auto own = OwnThread();
  const auto first = std::make_shared<LoopWait>(), second = std::make_shared<LoopWait>();
  {
    const std::jthread leads = Waiting(first);
    ASSERT_TRUE(RunsOn(leads.get_id()));
    const std::jthread follows = Waiting(second);
    EXPECT_EQ(Runner(), leads.get_id());
    loop_.Post([first] { first->End(); });
    EXPECT_TRUE(RunsOn(follows.get_id()));
    loop_.Post([second] { second->End(); });
  }
  EXPECT_EQ(Runner(), own);
}

// The answer of one that does not lead comes while another reads.
TEST_F(AwaitTest, OneThatFollowsIsWokenByWhoeverLeads) {
  const auto first = std::make_shared<LoopWait>(), second = std::make_shared<LoopWait>();
  const std::jthread leads = Waiting(first);
  ASSERT_TRUE(RunsOn(leads.get_id()));
  {
    const std::jthread follows = Waiting(second);
    loop_.Post([second] { second->End(); });
  }
  EXPECT_EQ(Runner(), leads.get_id());
  loop_.Post([first] { first->End(); });
}

TEST_F(AwaitTest, TimersFireWhileAThreadLeadsAndAfterIt) {
  std::promise<std::thread::id> during, after;
  const auto own = OwnThread();
  const auto wait = std::make_shared<LoopWait>();
  {
    const std::jthread waiting = Waiting(wait);
    ASSERT_TRUE(RunsOn(waiting.get_id()));
    loop_.PostAt(Clock::now() + milliseconds(1),
                 [&] { during.set_value(std::this_thread::get_id()); });
    EXPECT_EQ(during.get_future().get(), waiting.get_id());
    // The own thread, which sleeps, learns of it when the other has left.
    loop_.Post([&] {
      loop_.PostAt(Clock::now() + milliseconds(50),
                   [&] { after.set_value(std::this_thread::get_id()); });
      wait->End();
    });
  }
  auto fired = after.get_future();
  ASSERT_EQ(fired.wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(fired.get(), own);
}

TEST_F(AwaitTest, ATimerThatIsSetWhileALeaderSleepsFiresInTime) {
  std::promise<void> fired;
  const auto wait = std::make_shared<LoopWait>();
  const std::jthread waiting = Waiting(wait);
  ASSERT_TRUE(RunsOn(waiting.get_id()));
  std::this_thread::sleep_for(milliseconds(20));  // it spins no longer
  loop_.PostAt(Clock::now() + milliseconds(1), [&] { fired.set_value(); });
  EXPECT_EQ(fired.get_future().wait_for(kLimit / 2), std::future_status::ready);
  loop_.Post([wait] { wait->End(); });
}

TEST_F(AwaitTest, AnyThreadEndsAWait) {
  const auto wait = std::make_shared<LoopWait>();
  std::jthread waiting = Waiting(wait);
  ASSERT_TRUE(RunsOn(waiting.get_id()));
  const auto asleep =
      Clock::now() + 2 * std::chrono::microseconds(SpinRule::kDefaultUs);  // it spins no longer
  while (Clock::now() < asleep) Runner();
  wait->End();
  waiting.join();
  EXPECT_LT(Clock::now(), asleep + kLimit / 2);
}

TEST_F(AwaitTest, AWaitHasADeadline) {
  const auto own = OwnThread();
  for (int i = 0; i < 3; ++i) {
    const auto began = Clock::now();
    EXPECT_FALSE(loop_.Await(std::make_shared<LoopWait>(), began + milliseconds(5)));
    EXPECT_GE(Clock::now(), began + milliseconds(5));
    EXPECT_EQ(Runner(), own);
  }
}

TEST_F(AwaitTest, ATaskDoesNotWaitForItself) {
  std::promise<bool> ended;
  loop_.Post(
      [&] { ended.set_value(loop_.Await(std::make_shared<LoopWait>(), Clock::now() + kLimit)); });
  EXPECT_FALSE(ended.get_future().get());
}

TEST_F(AwaitTest, ThreadsThatWaitDoNotHinderAStop) {
  const auto first = std::make_shared<LoopWait>(), second = std::make_shared<LoopWait>();
  const std::jthread leads = Waiting(first);
  ASSERT_TRUE(RunsOn(leads.get_id()));
  const std::jthread follows = Waiting(second);
  bool ran = false;
  loop_.Post([&] { ran = true; });
  loop_.Stop();
  EXPECT_TRUE(ran);
  first->End();
  second->End();
}

TEST(AwaitWithoutPollerTest, TheOwnThreadRunsTheLoop) {
  EventLoop loop("test");
  const auto wait = std::make_shared<LoopWait>();
  const auto waiter = std::this_thread::get_id();
  loop.PostAt(Clock::now() + milliseconds(2), [&] {
    EXPECT_NE(std::this_thread::get_id(), waiter);
    wait->End();
  });
  EXPECT_TRUE(loop.Await(wait, Clock::now() + kLimit));
}

// Rounds never overlap, no task is lost and none waits for ever, whatever threads come and go.
TEST_F(AwaitTest, ManyThreadsTakeTurns) {
  constexpr int kThreads = 4, kWaits = 300;
  std::atomic<int> running{0}, posted{0};
  uint64_t ran = 0;  // by the loop alone, so TSan sees a round that overlaps another
  auto task = [&](const std::shared_ptr<LoopWait>& wait) {
    EXPECT_EQ(running.fetch_add(1), 0);
    ++ran;
    running.fetch_sub(1);
    wait->End();
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kWaits; ++i) {
          const auto wait = std::make_shared<LoopWait>();
          if (i % 3 == thread % 3) {
            loop_.PostAt(Clock::now() + std::chrono::microseconds(200), [&, wait] { task(wait); });
          } else {
            loop_.Post([&, wait] { task(wait); });
          }
          ++posted;
          EXPECT_TRUE(loop_.Await(wait, Clock::now() + kLimit));
        }
      });
    }
  }
  loop_.Stop();
  EXPECT_EQ(ran, static_cast<uint64_t>(posted));
  EXPECT_EQ(posted, kThreads * kWaits);
}

TEST(PollerGateTest, AShutGateKeepsWhatIsReadyForItsOpening) {
  const auto poller = *Poller::Create();
  const auto gate = *PollerGate::Create(poller);
  gate->Shut();
  poller->Wake();
  auto began = Clock::now();
  gate->Sleep(began + milliseconds(20));
  EXPECT_GE(Clock::now(), began + milliseconds(20));
  gate->Open();
  gate->Sleep(Clock::time_point::max());  // returns at once
  poller->Poll(Clock::time_point::min());
  began = Clock::now();
  gate->Sleep(began + milliseconds(20));
  EXPECT_GE(Clock::now(), began + milliseconds(20));
}

}  // namespace
}  // namespace gangway
