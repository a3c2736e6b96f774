// Gangs whose members wait for others in a collective: who is late, why, and what comes of it.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::GangMember;
using LateMembers = wire::Wait::LateMembers;

// Gang 10 runs on devices 0 to 3, of two workers.
class LateTest : public IslandTest {
 protected:
  void SetUp() override {
    IslandTest::SetUp();
    Load(1, {0, 1, 2, 3});
    Have(1, {0, 1, 2, 3});
    for (WorkerBeat& beat : beats_) beat = {};
  }

  GangMember& Say(uint32_t worker, uint32_t local_device, uint64_t gang, GangMember::Stage stage) {
    GangMember& member = *beats_[worker].beat.add_members();
    member.set_device(local_device);
    member.set_gang(gang);
    member.set_stage(stage);
    return member;
  }
  void Wait(uint32_t worker, uint32_t local_device, uint64_t gang, const std::string& collective,
            const std::string& awaited_worker, uint32_t awaited_device, uint64_t for_ms) {
    GangMember& member = Say(worker, local_device, gang, GangMember::STAGE_COLLECTIVE);
    member.set_collective(collective);
    member.set_awaited_worker(awaited_worker);
    member.set_awaited_device(awaited_device);
    member.set_for_ms(for_ms);
  }
  void Beat(uint32_t worker, std::vector<Time> heard = {}) {
    WorkerBeat beat = beats_[worker];
    beat.worker = worker;
    beat.incarnation = Incarnation(incarnations_[worker]);
    beat.heard = std::move(heard);
    Step(std::move(beat));
    notices_.insert(notices_.end(), actions_.notices.begin(), actions_.notices.end());
  }
  // Both workers tell what they have to say. Devices 0, 1 and 3 wait for device 2, the last one indirectly.
  void AllWaitForDevice2(uint64_t gang, uint64_t for_ms) {
    Wait(0, 0, gang, "all-reduce.7 at train.py:57", "island0/worker1", 0, for_ms);
    Wait(0, 1, gang, "all-reduce.9 at train.py:60", "island0/worker0", 0, for_ms + 500);
    Wait(1, 1, gang, "all-reduce.9 at train.py:60", "island0/worker0", 0, for_ms);
    Beat(0);
    Beat(1);
  }
  wire::Wait Explain(uint64_t gang, std::vector<Time> heard = {}) const {
    wire::WhyRequest request;
    request.set_gang(gang);
    wire::WhyReply reply;
    if (heard.empty()) heard = {now_, now_};
    island_->Explain(request, now_, heard, reply);
    return reply.waits(0);
  }

  WorkerBeat beats_[2];
  std::vector<std::string> notices_;  // of all heartbeats
};

TEST_F(LateTest, TheCollectiveAndTheMemberThatAllWaitForAreNamed_TM1) {
  Launch(10, 1, 1, 4, 2);
  Say(1, 0, 10, GangMember::STAGE_RUNNING);
  AllWaitForDevice2(10, 2000);
  const wire::Wait wait = Explain(10);
  EXPECT_EQ(wait.reason(), wire::Wait::REASON_COLLECTIVE);
  EXPECT_EQ(wait.collective(), "all-reduce.7 at train.py:57") << "the others wait for its members";
  EXPECT_EQ(wait.waited_ms(), 2000u);
  EXPECT_EQ(wait.limit_ms(), 300000u);
  EXPECT_EQ(wait.members(), 4u);
  EXPECT_EQ(wait.members_waiting(), 3u);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).worker(), "island0/worker1");
  EXPECT_THAT(wait.late(0).devices(), ElementsAre(2));
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_EXECUTING);
  EXPECT_THAT(wait.workers(), ElementsAre("island0/worker1"));
}

TEST_F(LateTest, AShortWaitIsNoneAndAMemberThatOnlyComputesIsNotLate) {
  Launch(10, 1, 1, 4, 2);
  for (uint32_t device : {0, 1}) Say(1, device, 10, GangMember::STAGE_RUNNING);
  Wait(0, 0, 10, "all-reduce.7", "island0/worker1", 0, 300);
  Beat(0);
  Beat(1);
  EXPECT_EQ(Explain(10).reason(), wire::Wait::REASON_EXECUTING);
  Tick(milliseconds(700));
  EXPECT_EQ(Explain(10).reason(), wire::Wait::REASON_COLLECTIVE);
  ASSERT_EQ(Explain(10).late_size(), 1);
  EXPECT_THAT(Explain(10).late(0).devices(), ElementsAre(2)) << "no member waits for device 3";
  beats_[0] = {};
  Beat(0);
  EXPECT_EQ(Explain(10).reason(), wire::Wait::REASON_EXECUTING) << "it has come";
}

TEST_F(LateTest, ASilentWorkerAndAStuckDeviceAreToldApart_TM1) {
  Launch(10, 1, 1, 4, 2);
  AllWaitForDevice2(10, 3000);
  wire::Wait wait = Explain(10, {now_, now_ - milliseconds(2000)});
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_SILENT);
  EXPECT_EQ(wait.late(0).for_ms(), 2000u);
  EXPECT_THAT(wait.late(0).devices(), ElementsAre(2, 3)) << "what it said before may be over";
  wire::StuckDevice* stuck = beats_[1].beat.add_stuck();
  stuck->set_device(0);
  stuck->set_gang(10);
  stuck->set_for_ms(3000);
  Say(1, 0, 10, GangMember::STAGE_CALL);
  Beat(1);
  wait = Explain(10);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_STUCK);
  EXPECT_EQ(wait.late(0).for_ms(), 3000u);
  EXPECT_EQ(wait.late(0).for_gang(), 10u);
  EXPECT_EQ(wait.for_gang(), 0u) << "the chain ends here";
  EXPECT_THAT(wait.late(0).devices(), ElementsAre(2));
}

TEST_F(LateTest, ADeadWorkerIsNamedUntilTheGangHasEnded_TM1) {
  Launch(10, 1, 1, 4, 2);
  AllWaitForDevice2(10, 2000);
  Down(1);
  const wire::Wait wait = Explain(10);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).worker(), "island0/worker1");
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_DOWN);
  EXPECT_THAT(wait.late(0).devices(), ElementsAre(2, 3));
}

TEST_F(LateTest, AnInputAndAGangAheadAreNamed_TM1) {
  Load(2, {2});
  Have(5, {2});
  Launch(8, 2, 5, 1, 6);   // on device 2 alone
  Launch(10, 1, 1, 4, 2);  // needs nothing of it
  Say(1, 0, 10, GangMember::STAGE_QUEUED);
  AllWaitForDevice2(10, 2000);
  wire::Wait wait = Explain(10);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_BEHIND_GANG);
  EXPECT_EQ(wait.late(0).for_gang(), 8u);
  EXPECT_EQ(wait.late(0).for_program(), "step");
  EXPECT_EQ(wait.late(0).for_source(), "train.py:42");
  EXPECT_EQ(wait.for_gang(), 8u) << "the chain goes on there";
  Done(1, 8);
  EXPECT_EQ(Explain(10).late(0).cause(), LateMembers::CAUSE_NOT_ENQUEUED);
  Done(0, 10);
  Done(1, 10);

  beats_[0] = beats_[1] = {};
  Launch(11, 2, 6, 1, 7);
  wire::IslandItem item = NodeItem(12);
  wire::Launch* launch = item.mutable_node()->mutable_launch();
  launch->set_executable(1);
  wire::ArrayRef* argument = launch->add_arguments();
  Refer(argument, 1, 2);
  Refer(argument, 7, 1);
  Refer(argument, 1, 1, 3);
  launch->add_results(9);
  Item(item);
  Say(1, 0, 12, GangMember::STAGE_ENQUEUED);
  AllWaitForDevice2(12, 2000);
  wait = Explain(12);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_INPUT);
  EXPECT_EQ(wait.late(0).for_gang(), 11u);
  EXPECT_THAT(wait.late(0).devices(), ElementsAre(2));
}

TEST_F(LateTest, AMemberThatWaitsForAClientIsNamedWithTheClient) {
  Launch(10, 1, 1, 4, 2);
  Say(1, 0, 10, GangMember::STAGE_CALLBACK).set_client("notebook");
  AllWaitForDevice2(10, 2000);
  const wire::Wait wait = Explain(10);
  ASSERT_EQ(wait.late_size(), 1);
  EXPECT_EQ(wait.late(0).cause(), LateMembers::CAUSE_CALLBACK);
  EXPECT_EQ(wait.late(0).client(), "notebook");
}

TEST_F(LateTest, ALateGangIsLoggedOnceAndAbortedAtTheLimit_TM1) {
  Launch(10, 1, 1, 4, 2);
  Say(1, 0, 10, GangMember::STAGE_QUEUED);
  AllWaitForDevice2(10, 4000);
  EXPECT_THAT(notices_, IsEmpty());
  for (int i = 0; i < 2; ++i) {
    for (WorkerBeat& beat : beats_) beat = {};
    AllWaitForDevice2(10, 5000);
    EXPECT_EQ(notices_.size(), 1u) << "said once";
  }
  beats_[0] = {};
  Wait(0, 0, 10, "all-reduce.7 at train.py:57", "island0/worker1", 0, 300000);
  Beat(0);
  EXPECT_EQ(SentCancels(0), 1);
  EXPECT_EQ(SentCancels(1), 1);
  ASSERT_THAT(actions_.notices, ElementsAre(HasSubstr("gang 10 is aborted")));
  Beat(0);
  EXPECT_EQ(SentCancels(0), 0);
  Done(0, 10);
  Done(1, 10);
  const wire::Failure& failure = done_.at(10);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(failure.worker(), "island0/worker1");
  EXPECT_EQ(failure.program(), "step");
  for (const char* words :
       {"300000 ms in collective all-reduce.7 at train.py:57", "device 2 of island0/worker1"})
    EXPECT_THAT(failure.message(), HasSubstr(words));
}

TEST_F(LateTest, TheLogNamesTheGangTheCollectiveAndTheMember) {
  Launch(10, 1, 1, 4, 2);
  Wait(0, 0, 10, "all-reduce.7 at train.py:57", "island0/worker1", 0, 5000);
  Beat(0, {now_, now_ - milliseconds(2100)});
  ASSERT_EQ(actions_.notices.size(), 1u);
  for (const char* words :
       {"gang 10 (step at train.py:42) of session 7 has stood for 5.0 s",
        "in collective all-reduce.7 at train.py:57, where 1 of 4 members wait for device 2, device "
        "3 of island0/worker1, which is silent (no heartbeat for 2.1 s)",
        "`gangway why gang 10`"})
    EXPECT_THAT(actions_.notices[0], HasSubstr(words));
}

// Heartbeats come from other processes: what they name may not exist.
TEST_F(LateTest, WhatDoesNotExistIsIgnored) {
  Launch(10, 1, 1, 4, 2);
  Wait(0, 7, 10, "x", "island0/worker1", 0, 9000);
  Wait(0, 0, 99, "x", "island0/worker1", 0, 9000);
  Wait(0, 1, 10, std::string(100000, 'x'), "island9/worker9", 77, UINT64_MAX);
  Beat(0);
  const wire::Wait wait = Explain(10);
  EXPECT_EQ(wait.reason(), wire::Wait::REASON_COLLECTIVE);
  EXPECT_LT(wait.collective().size(), size_t{1000});
  EXPECT_EQ(wait.late_size(), 0);
  Down(0);
  EXPECT_EQ(Explain(10).reason(), wire::Wait::REASON_EXECUTING);
}

}  // namespace
}  // namespace gangway::scheduler
