// Poller, alone and under an EventLoop.
#include "gangway/base/poller.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"

namespace gangway {
namespace {

using std::chrono::milliseconds;

class Calls final : public Poller::Watched {
 public:
  explicit Calls(std::function<void()> on_ready) : on_ready_(std::move(on_ready)) {}
  void OnReady(uint32_t) override { on_ready_(); }

 private:
  const std::function<void()> on_ready_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    from.Reset(ends[0]);
    to.Reset(ends[1]);
  }
  void Write() { EXPECT_EQ(write(to.get(), "x", 1), 1); }
  FileDescriptor from, to;
};

std::shared_ptr<Poller> NewPoller() {
  auto poller = Poller::Create();
  EXPECT_TRUE(poller.ok()) << poller.status();
  return *std::move(poller);
}

TEST(PollerTest, CallsWhatIsReadyUntilItIsForgotten) {
  auto poller = NewPoller();
  Pipe pipe;
  int calls = 0;
  const uint64_t id = poller->NextId();
  ASSERT_TRUE(
      poller
          ->Watch(id, pipe.from.get(), EPOLLIN | EPOLLET, std::make_shared<Calls>([&] { ++calls; }))
          .ok());
  poller->Poll(Clock::now());
  EXPECT_EQ(calls, 0);
  pipe.Write();
  poller->Poll(Clock::time_point::max());
  EXPECT_EQ(calls, 1);
  poller->Poll(Clock::now());
  EXPECT_EQ(calls, 1) << "edge-triggered";
  poller->Change(id, pipe.from.get(), EPOLLIN | EPOLLET);
  poller->Poll(Clock::now());
  EXPECT_EQ(calls, 2) << "a change reports what is ready again";
  poller->Forget(id, pipe.from.get());
  pipe.Write();
  poller->Poll(Clock::now());
  EXPECT_EQ(calls, 2);
}

TEST(PollerTest, PollEndsAtItsDeadlineAndAtAWake) {
  auto poller = NewPoller();
  const auto started = Clock::now();
  poller->Poll(started + milliseconds(20));
  EXPECT_GE(Clock::now(), started + milliseconds(20));
  for (int i = 0; i < 3; ++i) {
    poller->Wake();  // before the Poll that it ends
    poller->Poll(Clock::time_point::max());
  }
}

TEST(PollerTest, AnAlarmEndsThePollOfItsTime) {
  auto poller = NewPoller();
  for (int i = 0; i < 3; ++i) {
    const auto at = Clock::now() + milliseconds(5);
    poller->WakeAt(Clock::now() + milliseconds(1000));  // the last one counts
    poller->WakeAt(at);
    poller->Poll(Clock::now() + milliseconds(20'000));
    EXPECT_GE(Clock::now(), at);
    EXPECT_LT(Clock::now(), at + milliseconds(900));
    poller->WakeAt(at);  // which has passed
    poller->Poll(Clock::time_point::max());
  }
}

TEST(PollerTest, ABadDescriptorIsRefused) {
  auto poller = NewPoller();
  EXPECT_TRUE(absl::IsUnavailable(poller->Watch(1, -1, EPOLLIN, nullptr)));
}

TEST(PollerTest, AnEventLoopCallsWhatItsPollerWatches) {
  EventLoop loop("test");
  loop.Post([] {});  // it may wait already when it gets the poller
  auto poller = loop.poller();
  ASSERT_TRUE(poller.ok()) << poller.status();
  ASSERT_EQ(*loop.poller(), *poller) << "a loop has one";
  Pipe pipe;
  std::promise<bool> called;
  const uint64_t id = (*poller)->NextId();
  ASSERT_TRUE((*poller)
                  ->Watch(id, pipe.from.get(), EPOLLIN | EPOLLET,
                          std::make_shared<Calls>([&] { called.set_value(loop.IsLoopThread()); }))
                  .ok());
  pipe.Write();
  EXPECT_TRUE(called.get_future().get());
  (*poller)->Forget(id, pipe.from.get());
  loop.Stop();
}

// Each task posts the next one, so that the loop never waits.
TEST(PollerTest, ABusyEventLoopCallsWhatItsPollerWatches) {
  EventLoop loop("test");
  auto poller = loop.poller();
  ASSERT_TRUE(poller.ok()) << poller.status();
  std::atomic<bool> stop{false};
  std::function<void()> next = [&] {
    if (!stop) loop.Post(next);
  };
  loop.Post(next);
  Pipe pipe;
  std::promise<void> called;
  const uint64_t id = (*poller)->NextId();
  ASSERT_TRUE((*poller)
                  ->Watch(id, pipe.from.get(), EPOLLIN | EPOLLET,
                          std::make_shared<Calls>([&] { called.set_value(); }))
                  .ok());
  pipe.Write();
  called.get_future().get();
  stop = true;
  (*poller)->Forget(id, pipe.from.get());
  loop.Stop();
}

// A process that ends writes its last bytes before somebody else tells that it has ended.
TEST(PollerTest, BytesThatArrivedBeforeATaskWasPostedAreHandledBeforeIt) {
  EventLoop loop("test");
  auto poller = loop.poller();
  ASSERT_TRUE(poller.ok()) << poller.status();
  Pipe pipe;
  std::vector<std::string> ran;
  const uint64_t id = (*poller)->NextId();
  ASSERT_TRUE((*poller)
                  ->Watch(id, pipe.from.get(), EPOLLIN | EPOLLET, std::make_shared<Calls>([&] {
                            loop.Post([&] { ran.emplace_back("bytes"); });
                          }))
                  .ok());
  for (int i = 0; i < 100; ++i) {
    std::promise<void> busy, end, ended;
    loop.Post([&] {
      busy.set_value();
      end.get_future().get();
    });
    busy.get_future().get();
    pipe.Write();
    loop.Post([&] {
      ran.emplace_back("task");
      ended.set_value();
    });
    end.set_value();
    ended.get_future().get();
  }
  (*poller)->Forget(id, pipe.from.get());
  loop.Stop();
  ASSERT_EQ(ran.size(), 200u);
  for (size_t i = 0; i < ran.size(); ++i) EXPECT_EQ(ran[i], i % 2 == 0 ? "bytes" : "task") << i;
}

TEST(PollerTest, PostsAndTimersRunInALoopWithAPoller) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  for (int i = 0; i < 1000; ++i) {
    std::promise<void> ran;
    if (i % 10 == 0) {
      loop.PostAt(Clock::now() + milliseconds(1), [&] { ran.set_value(); });
    } else {
      loop.Post([&] { ran.set_value(); });
    }
    ran.get_future().get();
  }
}

// What is left to the end of a round is not left there when no round follows.
TEST(PollerTest, WhatIsLeftToTheEndOfARoundByAReadyDescriptorRuns) {
  EventLoop loop("test");
  auto poller = loop.poller();
  ASSERT_TRUE(poller.ok()) << poller.status();
  Pipe pipe;
  std::promise<void> ran;
  const uint64_t id = (*poller)->NextId();
  ASSERT_TRUE((*poller)
                  ->Watch(id, pipe.from.get(), EPOLLIN | EPOLLET, std::make_shared<Calls>([&] {
                            loop.AtRoundEnd([&] { ran.set_value(); });
                          }))
                  .ok());
  pipe.Write();
  ran.get_future().get();
  (*poller)->Forget(id, pipe.from.get());
  loop.Stop();
}

TEST(PollerTest, APollerOutlivesItsLoop) {
  std::shared_ptr<Poller> poller;
  {
    EventLoop loop("test");
    poller = *loop.poller();
  }
  Pipe pipe;
  int calls = 0;
  ASSERT_TRUE(
      poller->Watch(1, pipe.from.get(), EPOLLIN, std::make_shared<Calls>([&] { ++calls; })).ok());
  pipe.Write();
  poller->Wake();
  poller->Forget(1, pipe.from.get());
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace gangway
