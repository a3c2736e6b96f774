// Tests of earliest_timer.h.
#include "gangway/base/earliest_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>

namespace gangway {
namespace {

using std::chrono::milliseconds;

class EarliestTimerTest : public testing::Test {
 protected:
  void TearDown() override {
    OnLoop([this] { timer_.reset(); });
  }

  void OnLoop(const std::function<void()>& task) {
    std::promise<void> done;
    loop_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  int DueBy(milliseconds from_now) {
    std::promise<int> due;
    loop_.PostAt(Clock::now() + from_now, [&] { due.set_value(due_); });
    return due.get_future().get();
  }

  EventLoop loop_{"test"};
  int due_ = 0;  // on the loop
  std::optional<EarliestTimer> timer_{std::in_place, &loop_, [this] { ++due_; }};
};

TEST_F(EarliestTimerTest, ManySettingsAreDueOnceAtTheEarliest) {
  OnLoop([this] {
    const auto now = Clock::now();
    for (int ms = 200; ms > 20; --ms) timer_->SetBy(now + milliseconds(ms));
    for (int ms = 30; ms < 300; ++ms) timer_->SetBy(now + milliseconds(ms));
  });
  EXPECT_EQ(DueBy(milliseconds(400)), 1);
}

TEST_F(EarliestTimerTest, ItIsSetAgainOnceItWasDue) {
  for (int i = 1; i <= 3; ++i) {
    OnLoop([this] { timer_->SetBy(Clock::now()); });
    EXPECT_EQ(DueBy(milliseconds(1)), i);
  }
}

// The loop takes all tasks of a round off its timers before it runs the first.
TEST_F(EarliestTimerTest, ASettingThatIsTakenBackInItsOwnRoundIsNotDue) {
  OnLoop([this] {
    const auto now = Clock::now();
    loop_.PostAt(now, [this, now] { timer_->SetBy(now - milliseconds(1)); });
    timer_->SetBy(now + std::chrono::microseconds(1));
    while (Clock::now() < now + milliseconds(1)) continue;
  });
  EXPECT_EQ(DueBy(milliseconds(20)), 1);
}

TEST_F(EarliestTimerTest, OneThatIsDestroyedIsDueNoMore) {
  OnLoop([this] {
    const auto now = Clock::now();
    loop_.PostAt(now, [this] { timer_.reset(); });
    timer_->SetBy(now + std::chrono::microseconds(1));
    while (Clock::now() < now + milliseconds(1)) continue;
  });
  EXPECT_EQ(DueBy(milliseconds(20)), 0);
}

}  // namespace
}  // namespace gangway
