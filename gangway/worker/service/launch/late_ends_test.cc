// LateEnds: which ends go to the loop at once, and which are held, for how long.
#include "gangway/worker/service/launch/late_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace gangway::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LateEndsTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::hours kLong{1};

  void SetUp() override { ASSERT_TRUE(loop_.poller().ok()); }
  void Add(uint64_t ordinal, bool hurries = false) {
    late_->Add(Ordinal(ordinal), hurries, [this, ordinal] { gone_.push_back(ordinal); });
  }
  // What has run on the loop since the last call, after something else has woken it.
  std::vector<uint64_t> Gone() {
    std::promise<std::vector<uint64_t>> gone;
    loop_.Post([&] { gone.set_value(std::exchange(gone_, {})); });
    return gone.get_future().get();
  }

  EventLoop loop_{"test"};
  std::shared_ptr<LateEnds> late_ = std::make_shared<LateEnds>(&loop_, kLong);
  std::vector<uint64_t> gone_;  // on the loop
};

TEST_F(LateEndsTest, WhatHurriesGoesAtOnceBehindAllThatIsHeld) {
  Add(1);
  Add(2);
  EXPECT_THAT(Gone(), IsEmpty()) << "what else wakes the loop leaves them";
  Add(3, /*hurries=*/true);
  EXPECT_THAT(Gone(), ElementsAre(1, 2, 3));
  Add(4, /*hurries=*/true);
  EXPECT_THAT(Gone(), ElementsAre(4));
}

TEST_F(LateEndsTest, AllGoAtEveryEighthOrdinalTheSameOnAllWorkers) {
  Add(6);  // another worker has no part in it
  Add(7);
  EXPECT_THAT(Gone(), IsEmpty());
  Add(8);
  EXPECT_THAT(Gone(), ElementsAre(6, 7, 8));
  for (uint64_t i = 9; i < 16; ++i) Add(i);
  EXPECT_THAT(Gone(), IsEmpty());
  Add(16);
  EXPECT_THAT(Gone(), ElementsAre(9, 10, 11, 12, 13, 14, 15, 16));
}

// Of many sessions, this worker may have the odd ordinals only.
TEST_F(LateEndsTest, NoMoreThanSevenAreHeldWhateverTheirOrdinals) {
  for (uint64_t i = 1; i < 15; i += 2) Add(i);
  EXPECT_THAT(Gone(), IsEmpty());
  Add(15);
  EXPECT_THAT(Gone(), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  Add(17);
  EXPECT_THAT(Gone(), IsEmpty()) << "the count begins again";
}

TEST_F(LateEndsTest, NothingIsHeldForLongerThanItsTime) {
  late_ = std::make_shared<LateEnds>(&loop_);
  for (uint64_t i = 1; i < 64; i += 2) {
    if (i % 6 == 1) Add(i, /*hurries=*/true);  // some go before their timer is due
    std::promise<void> gone;
    late_->Add(Ordinal(i), /*hurries=*/false, [&gone] { gone.set_value(); });
    ASSERT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready) << i;
  }
}

TEST_F(LateEndsTest, TheTimerOfWhatHasGoneWakesNothing) {
  using std::chrono::milliseconds;
  late_ = std::make_shared<LateEnds>(&loop_, milliseconds(50));
  const auto rounds = [this] {
    std::promise<uint64_t> round;
    loop_.Post([&] { round.set_value(loop_.round()); });
    return round.get_future().get();
  };
  Add(1);
  Add(2, /*hurries=*/true);
  const uint64_t before = rounds();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(rounds(), before + 1) << "that of the question itself";
}

// The timer of what went before is no reason to tell what came since.
TEST_F(LateEndsTest, EachHasItsWholeTime) {
  using std::chrono::milliseconds;
  late_ = std::make_shared<LateEnds>(&loop_, milliseconds(200));
  std::promise<void> busy, free;
  loop_.Post([&] {
    busy.set_value();
    free.get_future().wait();
  });
  busy.get_future().wait();
  Add(1);
  std::this_thread::sleep_for(milliseconds(100));  // of the time of the first
  Add(2, /*hurries=*/true);
  std::promise<void> gone;
  const auto added = Clock::now();
  late_->Add(Ordinal(3), /*hurries=*/false, [&gone] { gone.set_value(); });
  free.set_value();
  ASSERT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_GE(Clock::now() - added, milliseconds(200));
}

}  // namespace
}  // namespace gangway::worker
