// When a thread that asks for an event serves its session.
#include "gangway/frontdoor/pjrt/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>

#include "gangway/frontdoor/pjrt/recording_client.h"

// Python's, in a process that is none of its own.
static int holds_pythons_lock = 0;
extern "C" __attribute__((visibility("default"), used)) int PyGILState_Check() {
  return holds_pythons_lock;
}

namespace gangway::pjrt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EventTest, AThreadThatHoldsPythonsLockRunsNoCallbacksOfOthers) {
  RecordingClient client(1);
  Outcome outcome(&client);
  holds_pythons_lock = 1;
  LookFor(outcome);
  EXPECT_THAT(client.Take(), IsEmpty());
  holds_pythons_lock = 0;
  LookFor(outcome);
  EXPECT_THAT(client.Take(), ElementsAre("wait"));
  outcome.Set(absl::OkStatus());
  LookFor(outcome);
  EXPECT_THAT(client.Take(), IsEmpty());
}

TEST(EventTest, TheFirstQuestionLooksForTheEndOfTheOperation) {
  RecordingClient client(1);
  Outcome peeked(&client), subscribed(&client), awaited(&client), unasked(&client);
  uint64_t number = 0;
  for (Outcome* each : {&peeked, &subscribed, &awaited, &unasked})
    each->SetOperation(OperationId(++number));
  bool told = false;
  unasked.Then([&](const absl::Status&) { told = true; }, Outcome::Wanted::kLate);
  EXPECT_THAT(client.Take(), IsEmpty());
  EXPECT_EQ(peeked.Peek(), std::nullopt);
  EXPECT_EQ(peeked.Peek(), std::nullopt);
  subscribed.Then([](const absl::Status&) {});
  EXPECT_EQ(awaited.WaitFor(std::chrono::milliseconds(0)), std::nullopt);
  EXPECT_THAT(client.Take(), ElementsAre("look for 1", "look for 2", "look for 3", "wait"));
  for (Outcome* each : {&peeked, &subscribed, &awaited, &unasked}) each->Set(absl::OkStatus());
  EXPECT_TRUE(told);
}

TEST(EventTest, WhatHasEndedOrIsNoOperationIsNotLookedFor) {
  RecordingClient client(1);
  Outcome answer(&client), ended(&client);
  EXPECT_EQ(answer.Peek(), std::nullopt);
  ended.Set(absl::OkStatus());
  ended.SetOperation(OperationId(1));
  EXPECT_EQ(ended.Peek(), absl::OkStatus());
  ended.Then([](const absl::Status&) {});
  EXPECT_THAT(client.Take(), IsEmpty());
  answer.Set(absl::OkStatus());
}

// A fetch may be held with the burst that it belongs to.
TEST(EventTest, AWaitForAnAnswerSendsWhatIsHeld) {
  RecordingClient client(1);
  Outcome answer(&client);
  EXPECT_EQ(answer.Peek(), std::nullopt);
  EXPECT_EQ(client.sends(), 0);
  EXPECT_EQ(answer.WaitFor(std::chrono::milliseconds(0)), std::nullopt);
  EXPECT_EQ(client.sends(), 1);
  answer.Set(absl::OkStatus());
  EXPECT_EQ(answer.Wait(), absl::OkStatus());
  EXPECT_EQ(client.sends(), 1);
}

}  // namespace
}  // namespace gangway::pjrt
