// Gangs whose members wait for one another in different collectives: when they are asked, and what comes of it.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Gang 10 runs on devices 0 to 3, of two workers.
class DeadlockTest : public IslandTest {
 protected:
  void SetUp() override {
    IslandTest::SetUp();
    Load(1, {0, 1, 2, 3});
    Have(1, {0, 1, 2, 3});
    Launch(10, 1, 1, 4, 2);
  }

  static wire::MemberWait& AddWait(wire::GangWaits& report, uint32_t device, uint64_t number,
                                   uint32_t worker, uint32_t awaited) {
    wire::MemberWait& wait = *report.add_waits();
    wait.set_device(device);
    wait.set_wait(number);
    wait.set_awaited_worker(worker);
    wait.set_awaited_device(awaited);
    return wait;
  }
  static void In(wire::MemberWait& wait, const std::string& collective, uint32_t number,
                 uint32_t call = 0) {
    wait.set_collective(collective);
    wait.set_number(number);
    wait.set_call(call);
  }
  void Report(uint32_t worker, const wire::GangWaits& waits, uint64_t gang = 10) {
    FromWorker event{worker, Incarnation(incarnations_[worker]), {}};
    wire::GangWaits& report = *event.batch.add_reports()->mutable_gang_waits();
    report = waits;
    report.set_gang(gang);
    Step(std::move(event));
  }
  void Confirm(uint32_t worker, uint32_t device, uint64_t check) {
    FromWorker event{worker, Incarnation(incarnations_[worker]), {}};
    wire::WaitConfirmed& confirmed = *event.batch.add_reports()->mutable_wait_confirmed();
    confirmed.set_gang(10);
    confirmed.set_check(check);
    confirmed.set_device(device);
    Step(std::move(event));
  }
  // Of the last step.
  std::vector<wire::WaitCheck> Checks(uint32_t worker) const {
    std::vector<wire::WaitCheck> checks;
    for (const auto& [to, item] : ByWorker(actions_))
      if (to == worker && item.has_wait_check()) checks.push_back(item.wait_check());
    return checks;
  }
  // Device 0 waits for device 2 in one collective, and device 2 for device 0 in another one.
  uint64_t MakeRing(uint32_t call_of_2 = 0, uint32_t number_of_2 = 3, bool far = false) {
    wire::GangWaits first, second;
    wire::MemberWait& one = AddWait(first, 0, 5, 1, 0);
    In(one, "psum at f.py:7", 2, 4);
    wire::MemberWait& other = AddWait(second, 0, 9, 0, 0);
    In(other, "all_gather at f.py:9", number_of_2, call_of_2);
    if (far) {
      one.mutable_deed()->set_number(77);
      other.mutable_deed()->set_sequence(99);
    }
    Report(0, first);
    EXPECT_THAT(Checks(0), IsEmpty());
    Report(1, second);
    EXPECT_EQ(Checks(0).size(), 1u);
    EXPECT_EQ(Checks(1).size(), 1u);
    return Checks(0).empty() ? 0 : Checks(0)[0].check();
  }
};

TEST_F(DeadlockTest, TheMembersOfARingAreAskedAndThenTheGangFailsWithBothCollectives) {
  const uint64_t check = MakeRing();
  ASSERT_EQ(Checks(1)[0].questions_size(), 1);
  EXPECT_EQ(Checks(1)[0].check(), check);
  EXPECT_EQ(Checks(1)[0].gang(), 10u);
  EXPECT_EQ(Checks(1)[0].questions(0).device(), 0u);
  EXPECT_EQ(Checks(1)[0].questions(0).wait(), 9u);
  EXPECT_FALSE(Checks(1)[0].questions(0).has_deed()) << "its own look is enough";
  Confirm(0, 0, check);
  EXPECT_EQ(SentCancels(0), 0);
  Confirm(1, 0, check);
  EXPECT_EQ(SentCancels(0), 1);
  EXPECT_EQ(SentCancels(1), 1);
  EXPECT_THAT(actions_.notices, ElementsAre(HasSubstr("gang 10 is aborted")));
  Confirm(1, 0, check);
  EXPECT_EQ(SentCancels(0), 0) << "once";
  Done(0, 10);
  Done(1, 10);
  const wire::Failure& failure = done_.at(10);
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(failure.program(), "step");
  EXPECT_EQ(failure.gang(), 10u);
  for (const char* words : {"device 0 of island0/worker0 waits in psum at f.py:7",
                            "device 2 of island0/worker1 waits in all_gather at f.py:9"})
    EXPECT_THAT(failure.message(), HasSubstr(words));
}

TEST_F(DeadlockTest, AMemberIsAskedForWhatTheOneBeforeItAwaitsWithoutSharedMemory) {
  MakeRing(0, 3, /*far=*/true);
  const wire::WaitQuestion first = Checks(0)[0].questions(0);
  EXPECT_EQ(first.deed().sequence(), 99u);
  EXPECT_EQ(first.for_worker(), 1u);
  EXPECT_EQ(first.for_device(), 0u);
  const wire::WaitQuestion second = Checks(1)[0].questions(0);
  EXPECT_EQ(second.deed().number(), 77u);
  EXPECT_EQ(second.for_worker(), 0u);
}

TEST_F(DeadlockTest, CallsOfOneCollectiveAreToldApart) {
  const uint64_t check = MakeRing(1, 2);
  Confirm(0, 0, check);
  Confirm(1, 0, check);
  ASSERT_EQ(actions_.notices.size(), 1u);
  EXPECT_THAT(actions_.notices[0], HasSubstr("waits in psum at f.py:7 (call 5)"));
  EXPECT_THAT(actions_.notices[0], HasSubstr("waits in all_gather at f.py:9 (call 2)"));
}

TEST_F(DeadlockTest, ARingInOneCallIsADefect) {
  const uint64_t check = MakeRing(4, 2);
  Confirm(0, 0, check);
  Confirm(1, 0, check);
  EXPECT_EQ(SentCancels(0), 1);
  Done(0, 10);
  Done(1, 10);
  EXPECT_EQ(done_.at(10).code(), static_cast<int>(absl::StatusCode::kInternal));
}

TEST_F(DeadlockTest, AGangThatHasFailedIsNotAsked) {
  Failing(0, 10, wire::MakeFailure(absl::StatusCode::kInternal, "it"));
  wire::GangWaits report;
  AddWait(report, 0, 1, 0, 1);
  AddWait(report, 1, 1, 0, 0);
  Report(0, report);
  EXPECT_THAT(Checks(0), IsEmpty());
}

// Reports come from other processes: what they name may not exist.
TEST_F(DeadlockTest, WhatDoesNotExistIsIgnored) {
  wire::GangWaits report;
  AddWait(report, 7, 1, 0, 1);
  AddWait(report, 0, 1, 9, 0);
  AddWait(report, 0, 1, 0, 9);
  AddWait(report, 1, 1, 0, 0);
  Report(0, report);
  Report(0, report, 99);
  Confirm(0, 0, 1);
  Confirm(0, 9, 1);
  EXPECT_THAT(Checks(0), IsEmpty());
  EXPECT_EQ(SentCancels(0), 0);
}

}  // namespace
}  // namespace gangway::scheduler
