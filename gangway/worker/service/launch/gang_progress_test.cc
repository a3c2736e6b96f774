// Tests of gang_progress.h.
#include "gangway/worker/service/launch/gang_progress.h"

#include <gtest/gtest.h>

namespace gangway::worker {
namespace {

class GangProgressTest : public testing::Test {
 protected:
  void Begin() { ASSERT_TRUE(executes_.Begin(Clock::now())); }
  GangProgress progress_{2};
  InFlight executes_;
};

TEST_F(GangProgressTest, AnEnqueuedMemberRunsOnceThoseBeforeItOnItsDeviceHaveEnded) {
  EXPECT_EQ(progress_.Look(0, executes_), wire::GangMember::STAGE_QUEUED);
  progress_.Set(0, wire::GangMember::STAGE_INPUT);
  EXPECT_EQ(progress_.Look(0, executes_), wire::GangMember::STAGE_INPUT);
  Begin();  // an earlier program
  Begin();  // its own
  progress_.NoteCall(0, executes_);
  EXPECT_EQ(progress_.Look(0, executes_), wire::GangMember::STAGE_CALL);
  progress_.NoteReturn(0);
  EXPECT_EQ(progress_.Look(0, executes_), wire::GangMember::STAGE_ENQUEUED);
  executes_.End();
  EXPECT_EQ(progress_.Look(0, executes_), wire::GangMember::STAGE_RUNNING);
  EXPECT_EQ(progress_.Look(1, executes_), wire::GangMember::STAGE_QUEUED);
}

TEST_F(GangProgressTest, AMemberThatEndedInTheCallHasEnded) {
  Begin();
  progress_.NoteCall(1, executes_);
  progress_.Set(1, wire::GangMember::STAGE_ENDED);
  progress_.NoteReturn(1);
  EXPECT_EQ(progress_.Look(1, executes_), wire::GangMember::STAGE_ENDED);
}

}  // namespace
}  // namespace gangway::worker
