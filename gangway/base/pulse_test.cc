// Pulse: beats run on the loop until the pulse is destroyed, and report a stall of the loop.
#include "gangway/base/pulse.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "gangway/base/clock.h"

namespace gangway {
namespace {

constexpr std::chrono::seconds kLimit{10};

// Runs `task` on the loop and waits for it.
void On(EventLoop& loop, std::function<void()> task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready);
}

TEST(PulseTest, BeatsUntilItIsDestroyed) {
  EventLoop loop("pulse");
  int beats = 0;
  std::promise<void> third;
  std::unique_ptr<Pulse> pulse;
  const auto began = Clock::now();
  pulse = std::make_unique<Pulse>(&loop, [&](Clock::time_point, Clock::duration) {
    EXPECT_TRUE(loop.IsLoopThread());
    if (++beats == 3) third.set_value();
  });
  ASSERT_EQ(third.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_GE(Clock::now() - began, 2 * Pulse::kInterval);
  On(loop, [&] { pulse.reset(); });
  const int before = beats;
  std::promise<void> later;
  loop.PostAt(Clock::now() + 2 * Pulse::kInterval, [&] { later.set_value(); });
  ASSERT_EQ(later.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(beats, before);
}

TEST(PulseTest, SaysWhenTheLoopStoodStill) {
  EventLoop loop("pulse");
  std::promise<void> first, second;
  std::vector<Clock::duration> still;
  std::unique_ptr<Pulse> pulse =
      std::make_unique<Pulse>(&loop, [&](Clock::time_point, Clock::duration stood_still) {
        still.push_back(stood_still);
        if (still.size() == 1) first.set_value();
        if (still.size() == 2) second.set_value();
      });
  ASSERT_EQ(first.get_future().wait_for(kLimit), std::future_status::ready);
  // This sleep is the stall under test; it does not wait for an event.
  static constexpr auto kStall = Pulse::kInterval + Pulse::kStill * 3 / 2;
  On(loop, [] { std::this_thread::sleep_for(kStall); });
  ASSERT_EQ(second.get_future().wait_for(kLimit), std::future_status::ready);
  On(loop, [&] { pulse.reset(); });
  EXPECT_EQ(still[0], Clock::duration());
  EXPECT_GE(still[1], kStall);
}

TEST(PulseTest, TimeInWhichItStoodStillIsNoSilenceOfAPeer) {
  const Clock::time_point heard = Clock::now(), now = heard + std::chrono::seconds(9);
  EXPECT_EQ(Pulse::Later(heard, {}, now), heard);
  EXPECT_EQ(Pulse::Later(heard, std::chrono::seconds(2), now), heard + std::chrono::seconds(2));
  EXPECT_EQ(Pulse::Later(heard, std::chrono::seconds(10), now), now)
      << "heard while it stood still";
}

}  // namespace
}  // namespace gangway
