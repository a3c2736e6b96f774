// The controller core alone: gangs over islands, handles, views, loss, schedulers of their own, session ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ControllerTest, AGangOverIslandsIsReleasedEverywhereOnceAdmittedEverywhere_GS4) {
  Make(Reach::kCluster);
  HaveProgram(5, {0, 4});
  Have(10, {0, 4});
  uint64_t gang = Call(5, {10}, {20});
  EXPECT_THAT(items_, ::testing::SizeIs(2)) << "one message per island (DF-1)";
  auto say = [&](uint32_t island, bool admitted) {
    items_.clear();
    wire::Report report;
    (admitted ? report.mutable_admitted() : report.mutable_ready())->add_ordinals(gang);
    Report(island, std::move(report));
  };
  say(0, false);
  EXPECT_THAT(items_, IsEmpty());
  say(1, false);
  ASSERT_EQ(items_.size(), 2u);
  EXPECT_THAT(items_[0].second.admit().ordinals(), ElementsAre(gang));
  say(1, true);
  EXPECT_THAT(items_, IsEmpty());
  say(0, true);
  ASSERT_EQ(items_.size(), 2u);
  EXPECT_THAT(items_[1].second.release().ordinals(), ElementsAre(gang));
  Done(0, gang);
  EXPECT_FALSE(Await({20}).has_value());
  Done(1, gang);
  EXPECT_EQ(Await({20})->code(), 0);
}

TEST_F(ControllerTest, APartThatFailsEndsTheOthersAndLeavesTheSequencer_ER2) {
  Make(Reach::kCluster);
  HaveProgram(5, {0, 4});
  Have(10, {0, 4});
  uint64_t gang = Call(5, {10}, {20});
  items_.clear();
  Done(0, gang, "no memory");
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 1u);
  EXPECT_THAT(items_[0].second.cancel().ordinals(), ElementsAre(gang));
  EXPECT_EQ(controller_->spanning_count(), 0u);
  Done(1, gang, "the other half failed");
  EXPECT_EQ(Await({20})->message(), "no memory");
}

TEST_F(ControllerTest, UnknownFreedAndForeignHandlesSpoilOnlyWhatNamesThem_OB3) {
  HaveProgram(5, {0});
  Have(10, {0});
  Have(11, {0}, /*session=*/2);
  Have(12, {0});
  Drop({12});
  for (uint64_t bad : {11u, 12u, 99u}) {
    EXPECT_EQ(Call(5, {bad}, {100 + bad}), 0u);
    EXPECT_THAT(Await({100 + bad})->message(),
                HasSubstr("array handle " + std::to_string(bad) + " is not known"));
  }
  EXPECT_EQ(Call(5, {10}, {300}, /*session=*/2), 0u) << "another session's program";
  EXPECT_THAT(Await({300}, 2)->message(), HasSubstr("executable handle 5 is not known"));
  Drop({10}, /*session=*/2);
  EXPECT_NE(Call(5, {10}, {200}), 0u);
}

TEST_F(ControllerTest, AHandleInUseKeepsItsArray) {
  Have(10, {0});
  EXPECT_EQ(Upload(10, {1}), 0u);
  EXPECT_TRUE(events_.back().second.has_upload_failed());
  EXPECT_EQ(Await({10})->code(), 0);
  EXPECT_EQ(Upload(0, {1}), 0u);
}

TEST_F(ControllerTest, ViewsShareTheirStorage_OB1) {
  Have(10, {0, 1, 2, 3});
  Regroup(11, {{10, 1}, {10, 2}});
  Regroup(12, {{11, 1}});
  Drop({10});
  Drop({11});
  EXPECT_THAT(Freed(0), IsEmpty());
  Drop({12});
  EXPECT_EQ(Freed(0).size(), 1u);
  EXPECT_EQ(controller_->storage_count(), 0u);
}

TEST_F(ControllerTest, AViewNamesTheRightShards) {
  Have(10, {0, 1, 2, 3});
  Regroup(11, {{10, 2}, {10, 3}, {10, 0}});
  Regroup(12, {{11, 1}});
  Copy(12, 13, {5});
  const wire::Copy& copy = items_.back().second.node().copy();
  ASSERT_EQ(copy.arrays_size(), 1);
  ASSERT_EQ(copy.arrays(0).source().runs_size(), 1);
  EXPECT_EQ(copy.arrays(0).source().runs(0).first(), 3u);
  EXPECT_EQ(copy.source_devices(0), 3u);
  Regroup(14, {{11, 5}});
  EXPECT_THAT(Await({14})->message(), HasSubstr("has 3 shards, shard 5 was requested"));
}

TEST_F(ControllerTest, AShardIsDroppedAloneAndTheOthersLiveOn_OB1) {
  HaveProgram(50, {0});
  Have(10, {0, 1});
  DropShards(10, {0});
  EXPECT_THAT(FreedShards(), ElementsAre("1:0+1"));
  EXPECT_EQ(Await({10})->code(), static_cast<int>(StatusCode::kInvalidArgument));
  Regroup(11, {{10, 1}});
  EXPECT_EQ(Await({11})->code(), 0);
  Regroup(12, {{10, 0}});
  EXPECT_THAT(Await({12})->message(), HasSubstr("deleted or donated"));
  DropShards(10, {1, 0, 7});
  EXPECT_THAT(FreedShards(), ElementsAre("1:0+1"));  // the view holds shard 1
  Drop({11});
  Drop({10});
  EXPECT_EQ(controller_->storage_count(), 0u);
}

TEST_F(ControllerTest, DeletingAShardOfAViewTakesItFromTheOthers_OB1) {
  Have(10, {0, 1});
  Regroup(11, {{10, 1}});
  Regroup(12, {{10, 0}});
  DropShards(11, {0}, /*consume=*/true);
  EXPECT_THAT(FreedShards(), ElementsAre("1:1+1"));
  EXPECT_NE(Await({10})->code(), 0);
  EXPECT_EQ(Await({12})->code(), 0);
  Drop({10, 11, 12});
  EXPECT_EQ(controller_->storage_count(), 0u);
}

TEST_F(ControllerTest, AClientThatAskedIsToldWhichNodesEnd) {
  Step(SessionOpened{SessionId(3), "three", /*wants_ends=*/true});
  const uint64_t first = Upload(10, {0}, 3), second = Upload(11, {0}, 3);
  EXPECT_EQ(Upload(12, {99}, 3), 0u);  // refused: a node that ends at once
  const uint64_t fourth = Upload(13, {0}, 3);
  EXPECT_THAT(Ends(3), ElementsAre("3+1 failed"));
  Done(0, second);
  Done(0, first);
  Done(0, fourth, "broken");
  EXPECT_THAT(Ends(3), ElementsAre("3+1 failed", "2+1", "1+1", "4+1 failed"));
  EXPECT_THAT(Ends(1), ElementsAre());
}

TEST_F(ControllerTest, EndsOfOneRoundAreRanges) {
  Step(SessionOpened{SessionId(3), "three", /*wants_ends=*/true});
  FromScheduler event{0, {}};
  for (uint64_t handle = 10; handle < 20; ++handle)
    event.batch.add_reports()->mutable_done()->set_ordinal(Upload(handle, {0}, 3));
  Step(std::move(event));
  EXPECT_THAT(Ends(3), ElementsAre("1+10"));
}

TEST_F(ControllerTest, AwaitsOfDroppedArraysAreAnswered) {
  uint64_t good = Upload(10, {0});
  uint64_t bad = Upload(11, {0});
  EXPECT_FALSE(Await({10, 10}).has_value());
  EXPECT_FALSE(Await({10, 11}).has_value());
  Drop({10, 11});
  EXPECT_NE(Await({10})->code(), 0) << "no longer known";
  Done(0, good);
  EXPECT_EQ(Awaited(1001)->code(), 0);
  Done(0, bad, "no bytes came");
  EXPECT_EQ(Awaited(1002)->message(), "no bytes came");
  EXPECT_EQ(controller_->storage_count(), 0u);
  EXPECT_EQ(Await({})->code(), 0);
}

TEST_F(ControllerTest, TheFirstFailureInTheOrderOfTheArraysIsTold) {
  uint64_t first = Upload(10, {0});
  uint64_t second = Upload(11, {0});
  Await({10, 11});
  Done(0, second, "second");
  Done(0, first, "first");
  EXPECT_EQ(Awaited(1001)->message(), "first");
}

TEST_F(ControllerTest, ArraysOfALostWorkerAreErrorsWithARecord_ER1) {
  HaveProgram(5, {0});
  Have(10, {0});
  Have(11, {2});
  LoseWorker(0, 0);
  EXPECT_TRUE(events_.back().second.has_worker_state());
  EXPECT_EQ(Call(5, {10}, {20}), 0u);
  EXPECT_EQ(Await({20})->worker(), "some worker");
  EXPECT_EQ(Await({10})->code(), static_cast<int>(StatusCode::kDataLoss));
  EXPECT_EQ(Await({11})->code(), 0);
}

TEST_F(ControllerTest, AnArrayThatLostOneIslandBeforeTheOtherWasReadyIsAnError_ER1) {
  uint64_t ordinal = Upload(10, {0, 4});
  Done(0, ordinal);
  LoseWorker(0, 0);
  Done(1, ordinal);
  EXPECT_EQ(Await({10})->worker(), "some worker");
}

TEST_F(ControllerTest, LossIsPerShard_OB1_ER1) {
  Have(10, {0, 2, 4});  // on three workers
  Have(11, {2});
  Regroup(20, {{10, 1}});  // a view, before the loss
  LoseWorker(0, 0);
  Regroup(21, {{10, 2}});  // one after it
  Regroup(22, {{10, 0}});
  Regroup(23, {{10, 2}, {10, 1}});
  Regroup(24, {{10, 1}, {10, 0}});
  EXPECT_EQ(Await({10})->worker(), "some worker");
  EXPECT_EQ(Await({22})->worker(), "some worker");
  EXPECT_EQ(Await({24})->worker(), "some worker");
  for (uint64_t good : {11, 20, 21, 23}) EXPECT_EQ(Await({good})->code(), 0) << good;
  // A good view is an argument, a source and can be fetched; of the array itself, the good shards can.
  HaveProgram(5, {2});
  EXPECT_NE(Call(5, {20}, {30}), 0u);
  EXPECT_NE(Copy(21, 31, {0}), 0u);
  wire::Op fetch;
  fetch.mutable_fetch()->set_fetch(1);
  fetch.mutable_fetch()->add_arrays(10);
  fetch.mutable_fetch()->add_shards(2);
  EXPECT_NE(OrdinalOf(fetch, 1), 0u);
  fetch.mutable_fetch()->add_arrays(10);
  fetch.mutable_fetch()->add_shards(0);
  EXPECT_EQ(OrdinalOf(fetch, 1), 0u);
  EXPECT_EQ(events_.back().second.fetch_failed().failure().worker(), "some worker");
  // All handles of the storage are counted as before.
  items_.clear();
  Drop({10, 20, 21, 22, 23, 24});
  EXPECT_THAT(Freed(0), ElementsAre(1));
}

TEST_F(ControllerTest, AReplicaIsTakenFromWhereOneIsLeft) {
  Have(10, {0, 2, 4});
  auto replica = [this](uint64_t handle, uint64_t of) {
    wire::Op op;
    wire::RegroupOp::Result* result = op.mutable_regroup()->add_results();
    result->set_array(handle);
    result->set_replica_of(of);
    Do(op);
    return Await({handle})->code();
  };
  auto device_of = [this](uint64_t handle) {
    wire::Op op;
    op.mutable_fetch()->set_fetch(handle);
    op.mutable_fetch()->add_arrays(handle);
    op.mutable_fetch()->add_shards(0);
    EXPECT_NE(OrdinalOf(op, 1), 0u);
    return items_.back().second.node().fetch().devices(0);
  };
  EXPECT_EQ(replica(20, 10), 0);
  EXPECT_EQ(device_of(20), 0u);
  LoseWorker(0, 0);
  EXPECT_EQ(replica(21, 10), 0);
  EXPECT_EQ(device_of(21), 2u);
  LoseWorker(0, 1);
  EXPECT_EQ(replica(22, 10), 0);
  EXPECT_EQ(device_of(22), 4u);
  LoseWorker(1, 0);
  EXPECT_EQ(replica(23, 10), static_cast<int>(StatusCode::kDataLoss));
  EXPECT_EQ(replica(24, 99), static_cast<int>(StatusCode::kInvalidArgument));
}

TEST_F(ControllerTest, AnAwaitOfAViewHearsOfTheLossOfItsOwnShards) {
  uint64_t ordinal = Upload(10, {0, 4});
  Regroup(20, {{10, 1}});
  EXPECT_FALSE(Await({20}).has_value());
  const uint64_t of_good = await_;
  EXPECT_FALSE(Await({10}).has_value());
  const uint64_t of_all = await_;
  Done(0, ordinal);
  LoseWorker(0, 0);
  Done(1, ordinal);
  EXPECT_EQ(Awaited(of_good)->code(), 0);
  EXPECT_EQ(Awaited(of_all)->worker(), "some worker");
}

// Both islands' schedulers are remote, and up with their workers.
class RemoteSchedulerTest : public ControllerTest {
 protected:
  void SetUp() override {
    Make(Reach::kWorker, {0, 1});
    for (uint32_t island : {0, 1}) {
      Step(SchedulerUp{island, 100 + island});
      for (uint32_t index : {0, 1}) StartWorker(island, index);
    }
  }
  void StartWorker(uint32_t island, uint32_t index) {
    wire::Report report;
    wire::WorkerState* state = report.mutable_worker_state();
    state->mutable_worker()->set_island(island);
    state->mutable_worker()->set_index(index);
    state->mutable_worker()->set_incarnation(++incarnation_);
    state->set_up(true);
    Report(island, std::move(report));
  }
  uint64_t incarnation_ = 10;
};

TEST_F(RemoteSchedulerTest, AnIslandWhoseSchedulerGoesIsLostAndNothingElse_ER1_ER2) {
  Have(10, {0});
  Have(11, {4});
  Upload(12, {0});
  Copy(11, 13, {2});
  events_.clear();
  items_.clear();
  Step(SchedulerDown{0, "it was killed"});
  EXPECT_EQ(controller_->node_count(), 1u) << "the sender's half of the copy";
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_TRUE(items_[0].second.has_cancel()) << "which is cancelled";
  EXPECT_EQ(items_[0].first, 1u);
  Done(1, items_[0].second.cancel().ordinals(0), "cancelled");
  for (uint64_t lost : {10, 12, 13}) {
    auto failure = Await({lost});
    ASSERT_TRUE(failure.has_value()) << lost;
    EXPECT_EQ(failure->code(), static_cast<int>(StatusCode::kDataLoss)) << lost;
    EXPECT_THAT(failure->message(), HasSubstr("island0/scheduler"));
    EXPECT_THAT(failure->message(), HasSubstr("it was killed"));
  }
  EXPECT_EQ(Await({10})->worker(), "island0/worker0");
  EXPECT_EQ(Await({12})->worker(), "island0/scheduler") << "it was still pending";
  EXPECT_EQ(Await({10})->incarnation(), 11u);
  EXPECT_EQ(Await({11})->code(), 0);
  EXPECT_THAT(controller_->AbsentWorkers(),
              testing::AllOf(HasSubstr("island0/scheduler"), HasSubstr("island0/worker1")));
  EXPECT_EQ(controller_->AbsentProcesses(), "island0/scheduler, island0/worker0, island0/worker1");
  wire::StatusReply status;
  controller_->FillStatus(now_, status);
  EXPECT_FALSE(status.schedulers(0).up());
  EXPECT_EQ(status.schedulers(1).process_id(), 101u);
}

TEST_F(RemoteSchedulerTest, TheNextSchedulerIsToldWhatItMustKnowAndWhatWaited) {
  HaveProgram(5, {0});
  HaveProgram(6, {0});
  HaveProgram(7, {4});
  Step(SchedulerDown{0, "it was killed"});
  items_.clear();
  EXPECT_EQ(Upload(20, {0}), 0u);
  EXPECT_EQ(Call(5, {20}, {21}), 0u);
  wire::Op drop;
  drop.mutable_drop_executables()->add_handles(5);
  Do(drop);
  EXPECT_THAT(items_, IsEmpty());
  EXPECT_TRUE(controller_->next_deadline().has_value());
  Step(SchedulerUp{0, 102});
  ASSERT_EQ(items_.size(), 5u);
  EXPECT_EQ(items_[0].second.load().name(), "step");
  EXPECT_EQ(items_[1].second.load().name(), "step");
  EXPECT_TRUE(items_[2].second.node().has_upload());
  EXPECT_TRUE(items_[3].second.node().has_launch());
  EXPECT_TRUE(items_[4].second.has_unload()) << "behind the launch that needs it";
  EXPECT_FALSE(controller_->next_deadline().has_value());
  Done(0, items_[2].second.node().ordinal());
  Done(0, items_[3].second.node().ordinal());
  EXPECT_EQ(Await({21})->code(), 0);
  items_.clear();
  Step(SchedulerDown{0, "again"});
  Step(SchedulerUp{0, 103});
  EXPECT_THAT(items_, ::testing::SizeIs(1)) << "what was dropped is not loaded again";
}

TEST_F(RemoteSchedulerTest, WhatWaitsTooLongFailsAndWhatReadsItToo_TM1) {
  HaveProgram(5, {0});
  Have(11, {4});
  Step(SchedulerDown{0, "it was killed"});
  items_.clear();
  Upload(20, {0});
  const uint64_t copy = Copy(11, 22, {0});
  EXPECT_NE(copy, 0u) << "the sender's half goes at once";
  Tick(milliseconds(600));
  Call(5, {20}, {21});
  Upload(23, {2});
  Tick(milliseconds(600));
  for (uint64_t late : {20, 21}) {
    auto failure = Await({late});
    ASSERT_TRUE(failure.has_value()) << late;
    EXPECT_EQ(failure->code(), static_cast<int>(StatusCode::kDeadlineExceeded));
    EXPECT_EQ(failure->gang(), copy - 1) << "the root cause";
    EXPECT_THAT(failure->message(), HasSubstr("island0/scheduler"));
  }
  EXPECT_TRUE(items_.back().second.has_cancel());
  EXPECT_EQ(items_.back().first, 1u);
  Done(1, copy, "cancelled");
  EXPECT_EQ(Await({22})->code(), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(Await({23}).has_value()) << "it has not waited that long";
  items_.clear();
  Step(SchedulerUp{0, 102});
  ASSERT_EQ(items_.size(), 2u);
  EXPECT_TRUE(items_[0].second.has_load());
  EXPECT_TRUE(items_[1].second.node().has_upload());
}

// The next scheduler does not know lost arrays, even while another island still runs its part.
TEST_F(RemoteSchedulerTest, WhatIsLostIsRefusedBeforeItsLastPartHasEnded_ER1) {
  HaveProgram(5, {0});
  Have(11, {4});
  const uint64_t copy = Copy(11, 20, {0});
  Step(SchedulerDown{0, "it was killed"});
  Step(SchedulerUp{0, 102});
  items_.clear();
  EXPECT_EQ(Call(5, {20}, {21}), 0u) << "its input is lost, so it is not sent";
  EXPECT_EQ(Await({21})->worker(), "island0/scheduler");
  EXPECT_FALSE(Await({20}).has_value());
  Done(1, copy, "cancelled");
  EXPECT_EQ(Await({20})->worker(), "island0/scheduler");
}

TEST_F(RemoteSchedulerTest, TheNextSchedulerKnowsWhoWasThere) {
  Step(SchedulerDown{1, "it was killed"});
  wire::IslandTerms terms;
  controller_->FillTerms(1, terms);
  ASSERT_EQ(terms.workers_size(), 2);
  EXPECT_THAT(terms.workers(1).devices(), ElementsAre(6, 7));
  EXPECT_EQ(terms.workers(1).incarnation(), 14u);
}

TEST_F(RemoteSchedulerTest, TheNextSchedulerKnowsWhichSessionsHaveEnded_OB2) {
  Step(SchedulerDown{1, "it was killed"});
  Step(SessionLost{SessionId(1)});
  Step(SessionLost{SessionId(2)});  // its client left before it opened
  wire::IslandTerms terms;
  controller_->FillTerms(1, terms);
  ASSERT_EQ(terms.ended_sessions_size(), 1);
  EXPECT_EQ(terms.ended_sessions(0).first(), 1u);
  EXPECT_EQ(terms.ended_sessions(0).last(), 2u);
}

TEST_F(ControllerTest, BrokenBooksEndTheirSessionAndNoOther_OB2) {
  Have(10, {0});
  Have(11, {0}, 2);
  wire::Report report;
  report.mutable_broken_books()->set_session(1);
  *report.mutable_broken_books()->mutable_failure() =
      wire::MakeFailure(StatusCode::kInternal, "sums of session 1");
  Report(0, report);
  ASSERT_EQ(actions_.ended.size(), 1u);
  EXPECT_EQ(actions_.ended[0].first, SessionId(1));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].first, 1u);
  EXPECT_EQ(events_[0].second.ended().message(), "sums of session 1");
  EXPECT_EQ(Freed(0).size(), 1u);
  EXPECT_EQ(controller_->storage_count(), 1u);
  EXPECT_EQ(Await({11}, 2)->code(), 0);
  Report(0, report);  // the next role that finds it
  EXPECT_THAT(actions_.ended, IsEmpty());
  EXPECT_THAT(actions_.to_clients, IsEmpty());
}

TEST_F(ControllerTest, ASessionsEndFreesAllThatItOwned_OB2) {
  HaveProgram(5, {0});
  Have(10, {0});
  Regroup(11, {{10, 0}});
  uint64_t pending = Upload(12, {4});
  Await({12});
  Compile(6, {0});
  items_.clear();
  Step(SessionLost{SessionId(1)});
  EXPECT_TRUE(items_[0].second.has_end_session());
  EXPECT_TRUE(items_[1].second.has_end_session());
  EXPECT_EQ(Freed(0).size(), 1u);
  EXPECT_EQ(Freed(1).size(), 1u);
  EXPECT_TRUE(items_.back().second.has_unload());
  Done(1, pending, "the session ended");
  FinishCompile(requests_.back().request());
  EXPECT_EQ(controller_->storage_count(), 0u);
  EXPECT_EQ(controller_->node_count(), 0u);
  wire::StatusReply status;
  controller_->FillStatus(now_, status);
  EXPECT_EQ(status.sessions_size(), 1);
}

TEST_F(ControllerTest, ADrainedWorkerTakesNothingNewAndCanBeRead) {
  Have(1, {2});
  HaveProgram(5, {2});
  Drain drain;
  drain.request.set_index(1);  // of island 0: devices 2 and 3
  EXPECT_FALSE(controller_->CheckDrain(drain.request));
  Step(drain);
  EXPECT_EQ(Call(5, {1}, {10}), 0u);
  EXPECT_EQ(Await({10})->code(), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(Await({10})->worker(), "island0/worker1");
  EXPECT_THAT(Await({10})->message(), HasSubstr("takes no new work"));
  EXPECT_EQ(Upload(11, {3}), 0u);
  EXPECT_EQ(Await({11})->code(), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(Copy(1, 12, {3}), 0u);
  EXPECT_EQ(Await({12})->code(), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_NE(Copy(1, 13, {0}), 0u) << "a copy off the drained worker";
  for (uint32_t worker : {0, 1}) BringUp(0, worker, 5);
  wire::Topology topology;
  controller_->FillTopology(topology);
  EXPECT_EQ(topology.workers_size(), 1);
  EXPECT_THAT(topology.absent(), testing::ElementsAre(HasSubstr("island1/worker0 (devices 4, 5)"),
                                                      HasSubstr("island1/worker1")));
  EXPECT_THAT(controller_->AbsentWorkers(), testing::Not(HasSubstr("island0/worker1")));
  drain.request.set_undo(true);
  Step(drain);
  EXPECT_NE(Call(5, {1}, {14}), 0u);
  drain.request.set_index(2);
  EXPECT_TRUE(controller_->CheckDrain(drain.request));
  drain.request.set_all(true);
  EXPECT_FALSE(controller_->CheckDrain(drain.request));
  Step(DrainAll{});
  EXPECT_EQ(Upload(15, {7}), 0u);
  EXPECT_THAT(Await({15})->message(), HasSubstr("shutting down"));
}

TEST_F(ControllerTest, AWorkerThatLeavesIsAnsweredAndItsPlaceIsOpenToTheNext) {
  auto up = [this](uint64_t incarnation) {
    wire::Report report;
    report.mutable_worker_state()->set_up(true);
    report.mutable_worker_state()->mutable_worker()->set_index(1);
    report.mutable_worker_state()->mutable_worker()->set_incarnation(incarnation);
    Report(0, std::move(report));
  };
  up(77);
  items_.clear();
  wire::Report report;
  report.mutable_leaving()->set_index(1);
  report.mutable_leaving()->set_incarnation(76);
  Report(0, report);
  EXPECT_THAT(items_, IsEmpty()) << "from a lost incarnation";
  report.mutable_leaving()->set_incarnation(77);
  Report(0, report);
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].second.leave().incarnation(), 77u);
  EXPECT_EQ(Upload(10, {2}), 0u);
  EXPECT_THAT(controller_->AbsentWorkers(), HasSubstr("island0/worker1"));
  up(78);
  EXPECT_THAT(controller_->AbsentWorkers(), testing::Not(HasSubstr("island0/worker1")));
  EXPECT_NE(Upload(11, {2}), 0u);
}

}  // namespace
}  // namespace gangway::controller
