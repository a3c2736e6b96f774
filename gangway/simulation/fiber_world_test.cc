// FiberWorld: the base's locks, waits, threads and loops on fibers, in virtual time and from a seed.
#include "gangway/simulation/fiber_world.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/random.h"
#include "gangway/base/thread.h"

namespace gangway::simulation {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Ends the test if the threads have not ended within a day of virtual time.
void RunIn(FiberWorld& world, std::function<void()> main) {
  const absl::Status ended = world.Run(std::move(main), hours(24));
  ASSERT_TRUE(ended.ok()) << ended;
}

TEST(FiberWorldTest, AnHourPassesAtOnceAndToTheNanosecondOfADeadline) {
  const auto began = std::chrono::steady_clock::now();
  FiberWorld world(1);
  RunIn(world, [] {
    const auto start = Clock::now();
    Answer<int> answer;
    EXPECT_EQ(answer.WaitFor(hours(1)), std::nullopt);
    EXPECT_GE(Clock::now() - start, hours(1));
    EXPECT_LT(Clock::now() - start, hours(1) + milliseconds(1));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(30));
}

TEST(FiberWorldTest, ALockIsHeldByOneThreadAlsoWhileThatThreadWaits) {
  FiberWorld world(2);
  RunIn(world, [] {
    Mutex outer, inner;
    CondVar never;
    int inside = 0, most = 0;
    std::vector<Thread> threads;
    for (int i = 0; i < 10; ++i) {
      threads.emplace_back("locker", [&] {
        MutexLock lock(outer);
        most = std::max(most, ++inside);
        MutexLock other(inner);
        never.WaitFor(inner, milliseconds(5), [] { return false; });
        --inside;
      });
    }
    for (Thread& thread : threads) thread.Join();
    EXPECT_EQ(most, 1);
  });
}

TEST(FiberWorldTest, AnAnswerEndsTheWaitForIt) {
  FiberWorld world(3);
  RunIn(world, [] {
    const auto start = Clock::now();
    auto answer = std::make_shared<Answer<std::string>>();
    EventLoop loop("answers");
    loop.PostAt(start + seconds(2), [answer] { answer->Set("here"); });
    EXPECT_EQ(answer->WaitFor(seconds(10)), "here");
    EXPECT_GE(Clock::now() - start, seconds(2));
    EXPECT_LT(Clock::now() - start, seconds(3));
  });
}

// The order in which three loops, which post to one another, ran their tasks.
std::string OrderOf(uint64_t seed, FiberWorld::Order kind) {
  std::string order;
  FiberWorld world(seed, kind);
  RunIn(world, [&order] {
    std::vector<std::unique_ptr<EventLoop>> loops;
    for (int i = 0; i < 3; ++i) loops.push_back(std::make_unique<EventLoop>("loop"));
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 3; ++i) {
        loops[i]->Post([&order, i, next = loops[(i + 1) % 3].get()] {
          EXPECT_TRUE(EventLoop::Current() != nullptr && EventLoop::Current() != next);
          order += static_cast<char>('a' + i);
          next->Post([&order, i] { order += static_cast<char>('A' + i); });
        });
      }
      Answer<bool>().WaitFor(milliseconds(RandomBits() % 3));
    }
    Answer<bool>().WaitFor(milliseconds(10));  // a loop that ends drops what is posted to it
  });
  return order;
}

// The order in which the threads of three processes ran: each runs ten times, a letter for its process.
std::string TurnsOf(FiberWorld::Order order) {
  std::string turns;
  FiberWorld world(7, order);
  RunIn(world, [&] {
    std::vector<World::ThreadId> threads;
    for (char name : {'a', 'b', 'c'}) {
      const uint64_t process = world.NewProcess();
      for (int i = 0; i < 5; ++i) {
        threads.push_back(world.StartIn(process, "runs", [&turns, &world, name] {
          for (int j = 0; j < 10; ++j) {
            turns += name;
            world.Wait(&turns, Clock::now());
          }
        }));
      }
    }
    for (World::ThreadId thread : threads) world.Join(thread);
  });
  return turns;
}

TEST(FiberWorldTest, ProcessesTakeTurnsOnlyWhenAsked) {
  EXPECT_EQ(TurnsOf(FiberWorld::Order::kByProcess),
            std::string(50, 'a') + std::string(50, 'b') + std::string(50, 'c'));
  const std::string any = TurnsOf(FiberWorld::Order::kAnyThread);
  EXPECT_EQ(any.size(), 150);
  EXPECT_NE(any.substr(0, 50), std::string(50, 'a'));
}

class OrderTest : public testing::TestWithParam<FiberWorld::Order> {};
INSTANTIATE_TEST_SUITE_P(All, OrderTest,
                         testing::Values(FiberWorld::Order::kAnyThread,
                                         FiberWorld::Order::kByProcess));

TEST_P(OrderTest, TheOrderFollowsFromTheSeed) {
  std::vector<std::string> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    orders.push_back(OrderOf(seed, GetParam()));
    EXPECT_EQ(orders.back().size(), 120u);
    EXPECT_EQ(orders.back(), OrderOf(seed, GetParam()));
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST_P(OrderTest, AStoppedProcessDoesNothingUntilItIsContinued) {
  FiberWorld world(4, GetParam());
  RunIn(world, [&world] {
    const uint64_t process = world.NewProcess();
    int beats = 0;
    uint64_t seen = 0;
    const World::ThreadId beating = world.StartIn(process, "beats", [&] {
      seen = ProcessId();
      for (; beats < 100; ++beats) Answer<bool>().WaitFor(milliseconds(10));
    });
    Answer<bool>().WaitFor(milliseconds(100));
    world.Stop(process);
    const int stopped_at = beats;
    EXPECT_GT(stopped_at, 5);
    Answer<bool>().WaitFor(seconds(10));
    EXPECT_EQ(beats, stopped_at);
    world.Continue(process);
    world.Join(beating);
    EXPECT_EQ(beats, 100);
    EXPECT_EQ(seen, process);
    EXPECT_NE(seen, ProcessId());
  });
}

TEST_P(OrderTest, AProcessIsContinuedAlsoIfNoneOfItsThreadsIsReady) {
  FiberWorld world(8, GetParam());
  RunIn(world, [&world] {
    const uint64_t process = world.NewProcess();
    int place = 0;
    const World::ThreadId waits =
        world.StartIn(process, "waits", [&] { world.Wait(&place, World::Time::max()); });
    Answer<bool>().WaitFor(milliseconds(1));
    world.Stop(process);
    world.Continue(process);
    world.Join(world.StartIn(world.NewProcess(), "wakes", [&] { world.NotifyOne(&place); }));
    world.Join(waits);
  });
}

TEST_P(OrderTest, AnExitEndsAllThreadsOfTheProcessAndNoOther) {
  FiberWorld world(9, GetParam());
  RunIn(world, [&world] {
    const uint64_t process = world.NewProcess();
    int beats = 0, others = 0;
    const World::ThreadId beating = world.StartIn(process, "beats", [&] {
      for (; beats < 100; ++beats) Answer<bool>().WaitFor(milliseconds(10));
    });
    const World::ThreadId exits = world.StartIn(process, "exits", [&] {
      Answer<bool>().WaitFor(milliseconds(105));
      world.Exit();
    });
    const World::ThreadId other = world.StartIn(world.NewProcess(), "other", [&] {
      for (; others < 100; ++others) Answer<bool>().WaitFor(milliseconds(10));
    });
    world.Join(exits);
    world.Join(beating);
    const int left_at = beats;
    EXPECT_GT(left_at, 5);
    EXPECT_LT(left_at, 15);
    world.Join(other);
    EXPECT_EQ(beats, left_at);
    EXPECT_EQ(others, 100);
  });
}

TEST(FiberWorldTest, ThreadsThatNothingCanWakeAreNamed) {
  FiberWorld world(5);
  const absl::Status ended = world.Run(
      [] {
        static Thread kept;
        kept = Thread("blocked", [] { World::installed()->Wait(&kept, World::Time::max()); });
      },
      hours(1));
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ended.message(), "nothing can wake: blocked of 1");
}

TEST(FiberWorldTest, AThreadThatPollsIsNamed) {
  FiberWorld world(6);
  const absl::Status ended = world.Run(
      [] {
        int place = 0;
        while (true) World::installed()->Wait(&place, Clock::now());
      },
      hours(1), 10'000);
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ended.message(), "something wakes again and again: main of 1");
}

}  // namespace
}  // namespace gangway::simulation
