// BatchPace: which operations wait for others, and for how long.
#include "gangway/client/batch_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace gangway::client {
namespace {

using std::chrono::microseconds;

constexpr microseconds kCall{40};  // a script's calls follow one another in this time

class BatchPaceTest : public ::testing::Test {
 protected:
  std::optional<microseconds> Wait(Urgency urgency) {
    return pace_.WaitOf(urgency, now_, context_);
  }
  std::optional<microseconds> WaitAfter(microseconds time, Urgency urgency) {
    now_ += time;
    return Wait(urgency);
  }
  // Takes all sends at once that callers have earned.
  void SpendSends() {
    while (!Wait(Urgency::kAnswered)) continue;
  }
  // Many calls, none of which is waited for.
  void RunAhead() {
    for (uint64_t i = 0; i <= BatchPace::kAheadOps; ++i) {
      now_ += kCall;
      pace_.NoteOperation();
      Wait(Urgency::kBatched);
    }
  }

  BatchPace pace_;
  Clock::time_point now_{std::chrono::hours(1)};
  BatchPace::Context context_;
};

TEST_F(BatchPaceTest, ACallerSendsAFewAtOnceAndEarnsOneMoreInEachInterval) {
  for (int i = 0; i < BatchPace::kSendsAtOnce; ++i)
    EXPECT_EQ(Wait(Urgency::kBatched), std::nullopt);
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kSendInterval);
  EXPECT_EQ(WaitAfter(BatchPace::kSendInterval / 2, Urgency::kBatched), BatchPace::kSendInterval);
  EXPECT_EQ(WaitAfter(BatchPace::kSendInterval / 2, Urgency::kBatched), std::nullopt);
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kSendInterval);
  now_ += 100 * BatchPace::kSendInterval;
  for (int i = 0; i < BatchPace::kSendsAtOnce; ++i)
    EXPECT_EQ(Wait(Urgency::kBatched), std::nullopt);
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kSendInterval) << "no more than these are saved";
}

TEST_F(BatchPaceTest, WhatIsAtOnceNeverWaits) {
  SpendSends();
  RunAhead();
  EXPECT_EQ(Wait(Urgency::kAtOnce), std::nullopt);
}

TEST_F(BatchPaceTest, WhatMayComeLaterWaitsBehindItsLike) {
  EXPECT_EQ(Wait(Urgency::kLater), std::nullopt);
  EXPECT_EQ(WaitAfter(BatchPace::kLaterInterval / 2, Urgency::kLater), BatchPace::kLaterInterval);
  EXPECT_EQ(WaitAfter(BatchPace::kLaterInterval, Urgency::kLater), std::nullopt);
  now_ += BatchPace::kLaterInterval;
  context_.holds_operations = true;
  EXPECT_EQ(Wait(Urgency::kLater), BatchPace::kLaterInterval);
}

TEST_F(BatchPaceTest, ACallerFarAheadWaitsForLongerThanOneThatWaitsForAnAnswer) {
  RunAhead();
  now_ += 2 * BatchPace::kSendInterval;  // two sends at once are earned
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kAheadInterval);
  EXPECT_EQ(Wait(Urgency::kAnswered), std::nullopt);
  SpendSends();
  EXPECT_EQ(Wait(Urgency::kAnswered), BatchPace::kSendInterval);
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kAheadInterval);
}

TEST_F(BatchPaceTest, ACallerThatPausesWaitsOrLooksForAllEndsIsNotFarAhead) {
  RunAhead();
  EXPECT_EQ(WaitAfter(BatchPace::kAheadInterval, Urgency::kBatched), std::nullopt) << "it paused";
  EXPECT_EQ(Wait(Urgency::kBatched), BatchPace::kAheadInterval);
  context_.looks_for_all = true;
  EXPECT_EQ(Wait(Urgency::kBatched), std::nullopt);
  context_.looks_for_all = false;
  pace_.NoteWait();
  EXPECT_EQ(Wait(Urgency::kBatched), std::nullopt);
}

}  // namespace
}  // namespace gangway::client
