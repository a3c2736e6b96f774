// When a thread that asks for an event serves its session.
#include "gangway/frontdoor/pjrt/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace gangway::pjrt
