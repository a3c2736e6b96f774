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

TEST(EventTest, AnEndIsLookedForFromTheFirstQuestionUntilItComes) {
  RecordingClient client(1);
  Outcome peeked(&client, Outcome::SetBy::kEnd), subscribed(&client, Outcome::SetBy::kEnd),
      awaited(&client, Outcome::SetBy::kEnd), unasked(&client, Outcome::SetBy::kEnd);
  EXPECT_EQ(client.looks(), 0);
  bool told = false;
  unasked.Then([&](const absl::Status&) { told = true; }, Outcome::Wanted::kLate);
  EXPECT_EQ(client.looks(), 0);
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(peeked.Peek(), std::nullopt);
    EXPECT_EQ(client.looks(), 1);
  }
  subscribed.Then([](const absl::Status&) {});
  EXPECT_EQ(client.looks(), 2);
  EXPECT_EQ(awaited.WaitFor(std::chrono::milliseconds(0)), std::nullopt);
  EXPECT_EQ(client.looks(), 3);
  for (Outcome* each : {&peeked, &subscribed, &awaited, &unasked}) each->Set(absl::OkStatus());
  EXPECT_EQ(client.looks(), 0);
  EXPECT_TRUE(told);
  EXPECT_EQ(peeked.Peek(), absl::OkStatus());
  EXPECT_EQ(client.looks(), 0);
  Outcome answer(&client);
  EXPECT_EQ(answer.Peek(), std::nullopt);
  EXPECT_EQ(client.looks(), 0);
  answer.Set(absl::OkStatus());
}

}  // namespace
}  // namespace gangway::pjrt
