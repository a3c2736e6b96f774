// Spin: how long, how many at once, and when not at all; and where an event loop spins.
#include "gangway/base/spin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/poller.h"

namespace gangway {
namespace {

using std::chrono::microseconds;

constexpr uint32_t kLimitUs = 1000;

// A host of four cores where two threads can run, unless a test says otherwise.
class SpinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/dev/shm/gangway-spin-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    ASSERT_TRUE(std::ofstream(folder_ + "/seats").good());
    rule_ = std::make_unique<SpinRule>(
        SpinRule::Host{.seats_file = folder_ + "/seats", .cores = 4, .runnable_threads = [this] {
                         ++asked_;
                         return runnable_.load();
                       }});
    rule_->SetLimit(kLimitUs);
  }
  void TearDown() override {
    unlink((folder_ + "/seats").c_str());
    rmdir(folder_.c_str());
  }

  // On a thread of its own, which has left nothing out yet.
  static bool Fresh(const std::function<bool()>& run) {
    return std::async(std::launch::async, run).get();
  }
  bool Spins() {
    return Fresh([this] { return Spin(Spin::For::kAnswer, *rule_).has_seat(); });
  }

  std::string folder_;
  std::atomic<size_t> runnable_ = 2;
  std::atomic<int> asked_ = 0;  // by spins that were to begin
  std::unique_ptr<SpinRule> rule_;
};

TEST_F(SpinTest, LastsAsLongAsTheLimit) {
  const auto lasts = [this] {
    const auto began = Clock::now();
    Spin spin(Spin::For::kAnswer, *rule_);
    int tries = 0;
    while (spin.Again()) ++tries;
    const bool is_over = !spin.Again();
    return tries > 0 && is_over && Clock::now() - began >= microseconds(kLimitUs);
  };
  // Where the host is busy, a thread may lose its core, and with it the spin.
  bool has_lasted = false;
  for (int i = 0; i < 100 && !has_lasted; ++i) has_lasted = Fresh(lasts);
  EXPECT_TRUE(has_lasted);
}

TEST_F(SpinTest, ForTheNextMessageItLastsAThirdAsLong) {
  const auto lasts = [this](Spin::For what) {
    Clock::duration duration{};
    Fresh([&] {
      const auto began = Clock::now();
      Spin spin(what, *rule_);
      while (spin.Again()) continue;
      duration = Clock::now() - began;
      return true;
    });
    return duration;
  };
  Clock::duration least = Clock::duration::max();
  for (int i = 0; i < 100 && least >= microseconds(kLimitUs); ++i)
    least = std::min(least, lasts(Spin::For::kNextMessage));
  EXPECT_GE(least, microseconds(kLimitUs / 3));
  EXPECT_LT(least, microseconds(kLimitUs));
}

TEST_F(SpinTest, WithALimitOfZeroNoneBegins) {
  rule_->SetLimit(0);
  EXPECT_FALSE(Spins());
  EXPECT_EQ(asked_, 0);
}

TEST_F(SpinTest, ALongerLimitThanThePermittedIsCut) {
  rule_->SetLimit(UINT32_MAX);
  const auto began = Clock::now();
  EXPECT_TRUE(Fresh([this] {
    Spin spin(Spin::For::kAnswer, *rule_);
    while (spin.Again()) continue;
    return true;
  }));
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(20));
}

TEST_F(SpinTest, OneCoreIsLeftToOthers) {
  EXPECT_FALSE(Fresh([this] {
    const Spin first(Spin::For::kAnswer, *rule_), second(Spin::For::kAnswer, *rule_),
        third(Spin::For::kAnswer, *rule_);
    return Spins();
  }));
}

TEST_F(SpinTest, ASeatIsFreeAgainAfterTheSpin) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Spins());
}

TEST_F(SpinTest, ASpinThatIsOverKeepsNoSeatFromOthers) {
  EXPECT_TRUE(Fresh([this] {
    Spin first(Spin::For::kAnswer, *rule_), second(Spin::For::kAnswer, *rule_),
        third(Spin::For::kAnswer, *rule_);
    for (Spin* each : {&first, &second, &third})
      while (each->Again()) continue;
    return Spins();
  }));
}

TEST_F(SpinTest, OnABusyHostNoneBegins) {
  runnable_ = 5;
  EXPECT_FALSE(Spins());
  runnable_ = 4;
  EXPECT_TRUE(Spins());
  runnable_ = 0;
  EXPECT_FALSE(Spins()) << "it is not known";
}

TEST_F(SpinTest, WithOneCoreOrAnUnknownNumberNoneBegins) {
  for (const size_t cores : {0, 1}) {
    SpinRule rule({.seats_file = folder_ + "/seats", .cores = cores, .runnable_threads = [] {
                     return size_t{1};
                   }});
    EXPECT_FALSE(Fresh([&] { return Spin(Spin::For::kAnswer, rule).has_seat(); }));
  }
}

TEST_F(SpinTest, AThreadWhoseSpinsAreInVainLeavesMostOut) {
  rule_->SetLimit(1);
  constexpr int kWaits = 1000;
  EXPECT_TRUE(Fresh([this] {
    for (int i = 0; i < kWaits; ++i) {
      Spin spin(Spin::For::kAnswer, *rule_);
      while (spin.Again()) continue;
    }
    return true;
  }));
  EXPECT_LT(asked_, kWaits / 10);
  asked_ = 0;
  rule_->SetLimit(kLimitUs);
  runnable_ = 5;
  EXPECT_TRUE(Fresh([this] {
    for (int i = 0; i < kWaits; ++i) (void)Spin(Spin::For::kAnswer, *rule_).Again();
    return true;
  }));
  EXPECT_LT(asked_, kWaits / 10) << "to ask for a free core in vain costs, too";
}

// Of a loop that has a poller, as those of services.
class LoopSpinTest : public SpinTest {
 protected:
  void SetUp() override {
    SpinTest::SetUp();
    SpinRule::Install(rule_.get());
  }
  void TearDown() override {
    SpinRule::Install(nullptr);
    SpinTest::TearDown();
  }

  static void Round(EventLoop& loop, const std::function<void()>& task) {
    std::promise<void> ran;
    loop.Post([&] {
      task();
      ran.set_value();
    });
    ran.get_future().get();
  }
};

TEST_F(LoopSpinTest, ALoopSpinsOnlyWhileSomethingIsUnderWay) {
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  for (int i = 0; i < 5; ++i) Round(loop, [] {});
  EXPECT_EQ(asked_, 0) << "idle";
  Round(loop, [] { LoopWork::Note(); });
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (asked_ == 0 && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(asked_, 1);
  for (int i = 0; i < 3; ++i) Round(loop, [] {});  // the first may have ended the work
  const int asked = asked_;
  for (int i = 0; i < 5; ++i) Round(loop, [] {});
  loop.Stop();
  EXPECT_EQ(asked_, asked) << "idle again";
}

TEST_F(LoopSpinTest, ALoopSpinsForTheNextMessage) {
  rule_->SetLimit(2);  // of which a third is nothing
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  for (int i = 0; i < 5; ++i) Round(loop, [] { LoopWork::Note(); });
  loop.Stop();
  EXPECT_EQ(asked_, 0);
}

TEST_F(LoopSpinTest, ALoopThatSpinsRunsWhatComes) {
  rule_->SetLimit(SpinRule::kMaxUs);
  EventLoop loop("test");
  ASSERT_TRUE(loop.poller().ok());
  for (int i = 0; i < 1000; ++i) {
    std::promise<void> ran;
    loop.Post([&] {
      LoopWork::Note();
      ran.set_value();
    });
    ran.get_future().get();
  }
  EXPECT_GT(asked_, 0);
  loop.Post([] { LoopWork::Note(); });
  loop.Stop();
}

TEST_F(LoopSpinTest, WithoutAPollerALoopSleeps) {
  EventLoop loop("test");
  for (int i = 0; i < 3; ++i) Round(loop, [] { LoopWork::Note(); });
  loop.Stop();
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace gangway
