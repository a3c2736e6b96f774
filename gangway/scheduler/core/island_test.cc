// The scheduler core alone: order, references, workers that are lost and return.
#include "gangway/scheduler/core/island.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "gangway/scheduler/core/island_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Order ---

TEST_F(IslandTest, WorkersGetGangsInOneOrder_GS1) {
  Load(1, {1, 2});
  Have(50, {1, 2});
  Upload(1, 51, {1, 2});
  Launch(2, 1, 51, 2, 60);  // waits for the upload
  Launch(3, 1, 50, 2, 61);  // overtakes it, on both workers
  Done(0, 1);
  Done(1, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 1, 3, 3, 2, 2));
  EXPECT_THAT(order_positions_[1], ElementsAre(2, 2)) << "on both workers";
  EXPECT_THAT(order_positions_[3], ElementsAre(3, 3));
  EXPECT_THAT(order_positions_[2], ElementsAre(4, 4))
      << "positions are in the order of the releases";
}

TEST_F(IslandTest, DisjointDevicesDoNotBlockEachOther_GS1) {
  Make(0, /*window=*/1);
  Load(1, {0});
  Load(2, {3});
  Have(50, {0});
  Have(51, {3});
  Launch(1, 1, 50, 1, 60);
  Launch(2, 1, 50, 1, 61);  // no slot on device 0
  Launch(3, 2, 51, 1, 62);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 3));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
}

TEST_F(IslandTest, AWaitingGangIsNotOvertakenOnItsDevices_GS1) {
  Make(0, /*window=*/1);
  Load(1, {0});
  Load(2, {0, 1});
  Load(3, {1});
  Have(50, {0, 1});
  Launch(1, 1, 50, 1, 60);
  Launch(2, 2, 50, 2, 61);  // waits for device 0 and claims device 1, too
  Launch(3, 3, 50, 1, 62);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
}

TEST_F(IslandTest, ReadersWaitForTheEndOfAnUploadAndTheReleaseOfAGang_GS4) {
  Load(1, {0});
  Upload(1, 50, {0});
  Launch(2, 1, 50, 1, 51);
  Launch(3, 1, 51, 1, 52);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2, 3)) << "3 is released while 2 runs";
}

TEST_F(IslandTest, ReadersOfAPutAreReleasedBehindIt_GS4) {
  Load(1, {0});
  Put(1, 50, 52, {0});
  Launch(2, 1, 51, 1, 60);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2)) << "the worker has the bytes by then";
}

TEST_F(IslandTest, ReadersOfAPutWaitForItsMemory_GS4) {
  Make(/*budget_bytes=*/4 * kBytes);
  Load(1, {0});
  Have(40, {0});
  Have(41, {0});
  Put(1, 50, 53, {0});
  Launch(2, 1, 51, 1, 60);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Free({40, 41});
  EXPECT_THAT(TakeReleased(), ElementsAre(1)) << "the launch needs memory for its result";
  EXPECT_EQ(Used(0), 4 * kBytes);
  Free({50});
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
}

TEST_F(IslandTest, APutThatFailsSpoilsAllItsArraysAndTheirReaders_ER1) {
  Load(1, {0});
  Put(1, 50, 51, {0});
  Launch(2, 1, 50, 1, 60);
  const wire::Failure full = wire::MakeFailure(kExhausted, "no room for the bytes");
  Done(0, 1, &full);
  EXPECT_EQ(done_.at(1).message(), "no room for the bytes");
  Launch(3, 1, 51, 1, 61);
  EXPECT_EQ(done_.at(3).message(), "no room for the bytes");
  EXPECT_EQ(SentCancels(0), 0) << "the launch was never sent";
}

TEST_F(IslandTest, AReaderOfAPutFailsWithTheRecordOfTheMemoryThatItDidNotGet_GS2_ER1) {
  Make(/*budget_bytes=*/3 * kBytes);
  Load(1, {0});
  Have(40, {0});
  Put(1, 50, 52, {0});
  Launch(2, 1, 51, 1, 60);
  Put(3, 53, 56, {0});
  EXPECT_EQ(done_.at(3).message(),
            "arrays that were put together need 64 bytes on each device, the budget is 48");
  Tick(milliseconds(3000));
  EXPECT_THAT(TakeReleased(), IsEmpty());
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(kExhausted));
  EXPECT_EQ(done_.at(2).SerializeAsString(), done_.at(1).SerializeAsString());
  Free({40, 50, 51, 52, 53, 54, 55, 56, 60});
  ExpectEmpty();
}

TEST_F(IslandTest, AWorkerThatIsLostUnderAPutFailsItsReadersEverywhere_ER1) {
  Load(1, {0, 2});
  Put(1, 50, 50, {0, 2});
  Launch(2, 1, 50, 2, 60);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 1, 2, 2));
  Done(1, 1);
  Down(0);
  EXPECT_EQ(done_.at(1).worker(), "island0/worker0");
  EXPECT_EQ(SentCancels(1), 1) << "its member must not wait for the other one";
  Done(1, 2);
  EXPECT_EQ(done_.at(2).worker(), "island0/worker0");
  EXPECT_EQ(done_.at(2).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Launch(3, 1, 50, 2, 61);
  EXPECT_EQ(done_.at(3).worker(), "island0/worker0");
}

TEST_F(IslandTest, AWorkerIsSentOnlySoMuchOfPutsThatHaveNotEnded_TM2) {
  put_cost_max_ = 2 * kPutCost;
  Make();
  Load(1, {0});
  for (uint64_t i = 1; i <= 4; ++i) Put(i, 50 + i, 50 + i, {0});
  Launch(5, 1, 54, 1, 60);
  Launch(6, 1, 51, 1, 61);
  Put(7, 57, 57, {2});
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2, 3, 6, 7)) << "others pass it";
  Tick(milliseconds(60'000));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), IsEmpty()) << "not until half of it has ended";
  Done(0, 3);
  EXPECT_THAT(TakeReleased(), ElementsAre(4, 5));
  Put(8, 58, 58, {0});
  for (uint64_t ordinal : {2, 4, 5, 6, 8}) Done(0, ordinal);
  Done(1, 7);
  Free({51, 52, 53, 54, 57, 58, 60, 61});
  ExpectEmpty();
}

TEST_F(IslandTest, APutThatIsHeldBackGoesOnceAWorkerHasRoomWhateverTheOthersDo_TM2) {
  put_cost_max_ = kPutCost;
  Make();
  Put(1, 51, 52, {0, 2});  // each worker is sent the shards of both
  Put(2, 53, 53, {0});
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 1));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2)) << "though worker 1 has not ended";
}

TEST_F(IslandTest, APutThatFailsBeforeItsReleaseMakesRoom_TM2) {
  put_cost_max_ = kPutCost;
  Make(/*budget_bytes=*/3 * kBytes);
  Have(40, {0});
  Put(1, 50, 52, {0});  // waits for memory
  Put(2, 53, 53, {0});
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Tick(milliseconds(3000));
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(kExhausted));
  EXPECT_THAT(TakeReleased(), ElementsAre(2)) << "in the same step";
}

TEST_F(IslandTest, APutThatIsHeldBackOutlivesTheWorkerThatWasFull_TM1) {
  put_cost_max_ = kPutCost;
  Make();
  Put(1, 51, 52, {0});
  Put(2, 53, 53, {0});
  Tick(milliseconds(10'000));
  Down(0);
  EXPECT_TRUE(done_.contains(1));
  EXPECT_FALSE(done_.contains(2)) << "it waits for the next process from now on";
  Up(0, 12);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2));
  Put(3, 54, 55, {0});
  Put(4, 56, 56, {0});
  Down(0);
  Tick(milliseconds(2000));
  EXPECT_EQ(done_.at(4).code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(IslandTest, APutWaitsForAWorkerThatIsDownAndGoesToTheNextProcess) {
  Load(1, {0});
  Down(0);
  Put(1, 50, 50, {0});
  Launch(2, 1, 50, 1, 60);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Up(0, 12);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2));
}

// --- Gangs over several islands ---

TEST_F(IslandTest, AGangOverIslandsWaitsForItsTurnAndForItsRelease_GS4) {
  Load(1, {0, 4});
  Have(50, {0, 4});
  Launch(1, 1, 50, 2, 60);
  EXPECT_THAT(Offered(), ElementsAre(1));
  EXPECT_EQ(Used(0), kBytes) << "it holds nothing before its turn";
  Turn(1);
  EXPECT_THAT(Admitted(), ElementsAre(1));
  EXPECT_EQ(Used(0), 2 * kBytes);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  ReleaseSpanning(1);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  Free({50, 60});
  ExpectEmpty();
}

TEST_F(IslandTest, AnOfferedGangHoldsUpNobody) {
  Make(0, /*window=*/1);
  Load(1, {0, 4});
  Load(2, {0});
  Have(50, {0, 4});
  Have(51, {0});
  Launch(1, 1, 50, 2, 60);
  Launch(2, 2, 51, 1, 61);
  EXPECT_THAT(TakeReleased(), ElementsAre(2)) << "1 still waits for the other islands";
  Turn(1);
  EXPECT_THAT(Admitted(), IsEmpty()) << "no slot";
  Done(0, 2);
  EXPECT_THAT(Admitted(), ElementsAre(1));
}

// A gang on its turn may hold slots on another island that a local gang's producer needs.
TEST_F(IslandTest, ATurnGoesBeforeLocalGangsOfLowerOrdinal_GS4) {
  Make(0, /*window=*/1);
  Load(1, {0, 4});
  Load(2, {0});
  Have(50, {0, 4});
  Have(51, {0});
  Upload(1, 52, {0});
  Launch(2, 2, 52, 1, 61);  // waits for the upload
  Launch(3, 1, 50, 2, 62);
  Launch(4, 2, 51, 1, 63);
  Turn(3);  // waits for the slot of 4
  Done(0, 1);
  Done(0, 4);
  EXPECT_THAT(Admitted(), ElementsAre(3));
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 4)) << "2 waits behind it";
  ReleaseSpanning(3);
  Done(0, 3);
  EXPECT_THAT(TakeReleased(), ElementsAre(3, 2));
}

TEST_F(IslandTest, TurnsAreServedInOrdinalOrderThoughTheyShareNoDeviceOfTheLowest_GS4) {
  Make(0, /*window=*/1);
  Load(1, {0, 4});
  Load(2, {0, 1, 4});
  Load(3, {1, 4});
  Load(4, {0});
  Have(50, {0});
  Have(51, {0, 4});
  Have(52, {0, 1, 4});
  Have(53, {1, 4});
  Launch(2, 1, 51, 2, 61);
  Launch(3, 2, 52, 3, 62);
  Launch(4, 3, 53, 2, 63);
  Launch(5, 4, 50, 1, 60);  // has the slot of device 0
  for (uint64_t ordinal : {2, 3, 4}) Turn(ordinal);
  EXPECT_THAT(Admitted(), IsEmpty()) << "4 must not take device 1 from 3";
  Done(0, 5);
  EXPECT_THAT(Admitted(), ElementsAre(2));
}

TEST_F(IslandTest, WhatAnAdmittedGangHeldComesBackWhenItIsCancelled_ER2) {
  Make(0, /*window=*/1);
  Load(1, {0, 4});
  Load(2, {0});
  Have(50, {0, 4});
  Launch(1, 1, 50, 2, 60);
  Turn(1);
  Cancel(1);
  EXPECT_EQ(done_.at(1).message(), "the other half failed");
  ReleaseSpanning(1);  // in flight when it failed
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Have(51, {0});
  Launch(2, 2, 51, 1, 61);
  EXPECT_THAT(TakeReleased(), ElementsAre(2)) << "the slot is free";
  Done(0, 2);
  Free({50, 51, 60, 61});
  ExpectEmpty();
}

TEST_F(IslandTest, CancelOfAReleasedGangReachesWorkersThatWaitForItsOtherMembers_ER2) {
  Load(1, {0, 4});
  Have(50, {0, 4});
  Launch(1, 1, 50, 2, 60);
  Turn(1);
  ReleaseSpanning(1);
  Cancel(1);
  EXPECT_EQ(SentCancels(0), 1);
}

// --- Copies between islands ---

TEST_F(IslandTest, ACopyFromAnotherIslandWaitsForItsSource_GS4) {
  Copy(1, 90, {4}, 50, {0});
  Load(1, {0});
  Launch(2, 1, 50, 1, 51);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Released(1);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2));
}

TEST_F(IslandTest, ACopyToAnotherIslandReportsItsRelease_GS4) {
  Upload(1, 50, {0});
  Copy(2, 50, {0}, 90, {4});
  EXPECT_FALSE(ReportedReleased(2));
  Done(0, 1);
  EXPECT_TRUE(ReportedReleased(2));
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2));
}

TEST_F(IslandTest, HalvesWhoseShardsStayOnTheirIslandDoNotWait_GS4) {
  Have(50, {0});
  Copy(1, 50, {0, 4}, 51, {1, 5});  // shard 1 concerns only the other island
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
}

TEST_F(IslandTest, CopiesThatCrossInBothDirectionsDoNotWaitForEver_GS4) {
  Upload(1, 50, {0});
  Copy(2, 50, {0, 4}, 51, {4, 0});
  EXPECT_FALSE(ReportedReleased(2)) << "its own source has no bytes yet";
  Done(0, 1);
  EXPECT_TRUE(ReportedReleased(2)) << "the other half waits for this";
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Released(2);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  EXPECT_FALSE(ReportedReleased(2)) << "once";
}

TEST_F(IslandTest, CancelOfAReleasedCopyReachesTheWorkersThatWait_ER2) {
  Copy(1, 90, {4}, 50, {0});
  Released(1);
  Cancel(1);
  EXPECT_EQ(
      Sent(0, [](const auto& item) { return item.has_cancel() && item.cancel().ordinals(0) == 1; }),
      1);
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kDataLoss, "gave up");
  Done(0, 1, &failure);
  EXPECT_EQ(done_[1].message(), "gave up");
}

TEST_F(IslandTest, AReceiverIsToldWhomToAskBeforeItsRelease) {
  Have(100, {0, 1});
  Copy(1, 100, {0, 1}, 101, {2, 1});
  std::vector<std::string> seen;
  for (const auto& [worker, item] : ByWorker(actions_)) {
    if (item.has_release()) seen.push_back(absl::StrCat("release ", worker));
    if (!item.has_peers()) continue;
    seen.push_back(absl::StrCat("sender ", worker));
    ASSERT_EQ(item.peers().workers_size(), 1);
    EXPECT_EQ(item.peers().workers(0).incarnation(), 11u);
    EXPECT_EQ(item.peers().workers(0).data_address(), "address0");
    EXPECT_THAT(item.peers().workers(0).devices(), ElementsAre(0, 1));
  }
  EXPECT_THAT(seen, ElementsAre("sender 1", "release 0", "release 1"));
  const auto named = [](const auto& item) { return item.has_peers(); };
  Copy(2, 100, {0, 1}, 102, {3, 2});
  EXPECT_EQ(Sent(1, named), 0) << "it knows the process";
  Up(0, 12);
  EXPECT_EQ(Sent(1, named), 1) << "and learns of its end";
  Have(103, {0, 1});
  Copy(3, 103, {0, 1}, 104, {1, 0});
  EXPECT_EQ(Sent(0, named), 0) << "nothing crosses";
  Copy(4, 103, {0, 1}, 105, {2, 3});
  EXPECT_EQ(Sent(1, named), 1);
}

TEST_F(IslandTest, SendersOfAnotherIslandAreNamedWithTheirRelease) {
  const auto copy = [this](uint64_t ordinal, uint64_t incarnation) {
    Copy(ordinal, 500, {4, 5}, 100 + ordinal, {0, 2});
    wire::IslandItem item;
    item.mutable_released()->add_ordinals(ordinal);
    wire::Worker* sender = item.mutable_released()->add_sources();
    sender->set_island(1);
    sender->set_index(1);
    sender->set_incarnation(incarnation);
    Item(item);
  };
  const auto told = [this](uint32_t worker, uint64_t incarnation) {
    return Sent(worker, [incarnation](const auto& sent) {
      return sent.has_peers() && sent.peers().workers(0).island() == 1 &&
             sent.peers().workers(0).incarnation() == incarnation;
    });
  };
  copy(1, 77);
  for (uint32_t worker : {0, 1}) EXPECT_EQ(told(worker, 77), 1);
  copy(2, 77);
  for (uint32_t worker : {0, 1}) EXPECT_EQ(told(worker, 77), 0) << "they know the process";
  Up(1, 22);
  copy(3, 77);
  EXPECT_EQ(told(0, 77), 0);
  EXPECT_EQ(told(1, 77), 1) << "its own process is new";
  copy(4, 78);
  for (uint32_t worker : {0, 1}) EXPECT_EQ(told(worker, 78), 1);
}

TEST_F(IslandTest, ASenderThatFailsEndsTheWaitOfTheReceiver_ER1) {
  Have(100, {0, 1});
  Copy(1, 100, {0, 1}, 101, {2, 3});
  wire::Failure root = wire::MakeFailure(absl::StatusCode::kInternal, "the root cause");
  Done(0, 1, &root);
  EXPECT_EQ(SentCancels(1), 1);
  EXPECT_EQ(actions_.to_workers.back().item.cancel().failure().message(), "the root cause");
  wire::Failure other = wire::MakeFailure(absl::StatusCode::kCancelled, "was told to");
  Done(1, 1, &other);
  EXPECT_EQ(done_.at(1).message(), "the root cause");
}

TEST_F(IslandTest, AMemberThatFailsEndsTheGangElsewhereBeforeItsOwnWorkerDoes_ER1) {
  Load(1, {0, 1, 2});
  Have(50, {0, 1, 2});
  Launch(1, 1, 50, 3, 60);
  const wire::Failure root = wire::MakeFailure(absl::StatusCode::kInternal, "the root cause");
  const wire::Failure other = wire::MakeFailure(absl::StatusCode::kCancelled, "was told to");
  Failing(1, 1, root);
  EXPECT_EQ(SentCancels(0), 1);
  EXPECT_EQ(actions_.to_workers.back().item.cancel().failure().message(), "the root cause");
  Failing(0, 1, other);
  EXPECT_EQ(SentCancels(0), 0) << "it was told already";
  Done(0, 1, &other);
  EXPECT_FALSE(done_.contains(1)) << "its memory is in use until the last worker has ended it";
  Done(1, 1, &other);
  EXPECT_EQ(done_.at(1).message(), "the root cause");
  Failing(1, 1, root);  // of a gang that has ended
}

TEST_F(IslandTest, ReadsOnlyTheShardsOfAnArrayThatAreHere) {
  Have(50, {0});
  wire::IslandItem item = NodeItem(1);
  wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
  Refer(fetch->mutable_source(), 50, 1);
  Refer(fetch->mutable_source(), 90, 1);  // a storage of another island
  *fetch->mutable_devices() = Spec({0, 4}).devices();
  Item(item);
  EXPECT_EQ(done_.count(1), 0u);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
}

// Or sessions that share no worker with a late one wait for it.
TEST_F(IslandTest, APartThatHasEndedGivesItsSlotsBackAtOnce) {
  Make(0, /*window=*/1);
  Load(1, {3, 2, 0});
  Load(2, {2, 3});
  Load(3, {0});
  Have(50, {3, 2, 0});
  Have(51, {2, 3});
  Have(52, {0});
  Launch(1, 1, 50, 3, 60);
  Launch(2, 2, 51, 2, 61);
  Launch(3, 3, 52, 1, 62);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 1)) << "to two workers";
  Done(1, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2)) << "devices 2 and 3 are free, 0 is not";
  Done(1, 2);
  EXPECT_THAT(TakeReleased(), IsEmpty());
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(3)) << "and no slot is free twice";
  Launch(4, 2, 51, 2, 63);
  Launch(5, 2, 51, 2, 64);
  EXPECT_THAT(TakeReleased(), ElementsAre(4));
}

// --- References ---

TEST_F(IslandTest, AConsumerWaitsUntilEarlierReadersAreReleased_OB1) {
  Make(0, /*window=*/1);
  Load(1, {0});
  Load(2, {0, 1});
  Load(3, {1});
  Have(50, {0, 1});
  Have(51, {0});
  Launch(1, 1, 51, 1, 60);
  Launch(2, 2, 50, 2, 61);                   // reads 50, waits for a slot on device 0
  Launch(3, 3, 50, 1, 62, /*donate=*/true);  // consumes 50
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 2));
  Done(0, 2);
  EXPECT_THAT(TakeReleased(), ElementsAre(3));
}

TEST_F(IslandTest, AReaderWithoutAPlaceInTheQueuesLetsItsConsumerGoInTheSameStep) {
  Load(1, {0});
  Upload(1, 50, {0});
  Fetch(2, 50, {0});
  Launch(3, 1, 50, 1, 51, /*donate=*/true);
  TakeReleased();
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2, 3));
}

TEST_F(IslandTest, ShardsAreFreedWhenNoHandleAndNoNodeIsLeft_OB1) {
  Load(1, {0, 2});
  Have(50, {0, 2});
  Launch(1, 1, 50, 2, 51);
  Free({50, 51});
  EXPECT_EQ(SentFrees(0, 50) + SentFrees(1, 50), 0);
  Done(0, 1);
  EXPECT_EQ(SentFrees(0, 50) + SentFrees(1, 50), 0) << "worker 1 still runs it";
  Done(1, 1);
  EXPECT_EQ(SentFrees(0, 50), 1);
  EXPECT_EQ(SentFrees(1, 50), 1);
  EXPECT_EQ(SentFrees(0, 51), 1);
  ExpectEmpty();
}

TEST_F(IslandTest, TheShardsOfASpoiledArrayGoAtOnceItsRecordStays_OB1_ER1) {
  Load(1, {0});
  Have(50, {0});
  Launch(1, 1, 50, 1, 51);
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInternal, "broken");
  Done(0, 1, &failure);
  EXPECT_EQ(SentFrees(0, 51), 1);
  EXPECT_EQ(Used(0), kBytes);
  Launch(2, 1, 51, 1, 52);
  EXPECT_EQ(done_[2].message(), "broken");
  Free({51});
  EXPECT_EQ(SentFrees(0, 51), 0) << "once";
  Free({50, 52});
  ExpectEmpty();
}

TEST_F(IslandTest, ASessionsEndCancelsWhatIsNotReleased_OB2) {
  Load(1, {0});
  Upload(1, 50, {0});
  Launch(2, 1, 50, 1, 51);
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession);
  Item(end);
  EXPECT_EQ(done_[2].code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_end_session(); }), 1);
  Free({50, 51});
  wire::Failure abandoned = wire::MakeFailure(absl::StatusCode::kCancelled, "abandoned");
  Done(0, 1, &abandoned);
  ExpectEmpty();
}

// --- Lost and returning workers ---

TEST_F(IslandTest, ALostWorkerFailsWhatItHeldWithARecord_ER1) {
  Load(1, {0});
  Load(2, {2});
  Have(50, {0});
  Have(51, {2});
  Launch(1, 1, 50, 1, 60);
  Launch(2, 2, 51, 1, 61);
  Down(0);
  ASSERT_EQ(done_.count(1), 1u);
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(done_[1].worker(), "island0/worker0");
  EXPECT_EQ(done_[1].incarnation(), 11u);
  EXPECT_EQ(done_[1].gang(), 1u);
  EXPECT_EQ(done_[1].program(), "step");
  EXPECT_THAT(done_[1].message(), HasSubstr("its process was killed"));
  EXPECT_EQ(done_.count(2), 0u) << "the other worker continues (ER-2)";
  Launch(3, 1, 50, 1, 62);  // reads a lost array
  EXPECT_EQ(done_[3].worker(), "island0/worker0");
  EXPECT_EQ(done_[3].incarnation(), 11u);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(Used(2), 2 * kBytes);
}

TEST_F(IslandTest, NodesWaitForTheirWorkerAndLoadsAreSentAgain) {
  Load(1, {0});
  Down(0);
  Upload(1, 50, {0});
  Launch(2, 1, 50, 1, 51);
  EXPECT_EQ(done_.count(1) + done_.count(2), 0u);
  EXPECT_EQ(SentNodes(0), 0);
  Up(0, 12);
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_open_devices(); }), 1);
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_load(); }), 1);
  EXPECT_EQ(SentNodes(0), 2);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
}

TEST_F(IslandTest, ALoadThatFailedForAPassingReasonIsTriedAgainAtTheNextUse) {
  auto loads = [this] { return Sent(0, [](const auto& item) { return item.has_load(); }); };
  auto fail_load = [this](absl::StatusCode code) {
    wire::ReportBatch batch;
    wire::Loaded* loaded = batch.add_reports()->mutable_loaded();
    loaded->set_executable(1);
    loaded->mutable_failure()->set_code(static_cast<int>(code));
    Step(FromWorker{0, Incarnation(11), batch});
  };
  Load(1, {0});
  EXPECT_EQ(loads(), 1);
  fail_load(absl::StatusCode::kResourceExhausted);
  Upload(1, 50, {0});
  Launch(2, 1, 50, 1, 51);
  EXPECT_EQ(done_[2].code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  Tick(milliseconds(1000));
  Launch(3, 1, 50, 1, 52);
  EXPECT_EQ(loads(), 1);
  EXPECT_EQ(done_.count(3), 0u) << "it runs behind the Load";
  fail_load(absl::StatusCode::kUnimplemented);
  Tick(milliseconds(1000));
  Launch(4, 1, 50, 1, 53);
  EXPECT_EQ(done_[4].code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(loads(), 0) << "it will never load";
}

TEST_F(IslandTest, NodesWaitForAWorkerOnlySoLong) {
  Down(1);
  Upload(1, 50, {2});
  Tick(milliseconds(1999));
  EXPECT_EQ(done_.count(1), 0u);
  Tick(milliseconds(1));
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(done_[1].worker(), "island0/worker1");
}

TEST_F(IslandTest, AReaderOfAnUnsentNodeWaitsToo) {
  Load(1, {0});
  Down(1);
  Upload(1, 50, {0, 2});    // needs both workers
  Launch(2, 1, 50, 1, 51);  // needs only worker 0, which does not know storage 50 yet
  EXPECT_EQ(SentNodes(0), 0);
  Up(1, 22);
  EXPECT_EQ(SentNodes(0), 2);
  EXPECT_EQ(SentNodes(1), 1);
}

TEST_F(IslandTest, AReaderOfAnUnsentNodeFailsWithIt_ER1) {
  Load(1, {0});
  Down(1);
  Upload(1, 50, {0, 2});
  now_ += milliseconds(500);
  Launch(2, 1, 50, 1, 51);
  Tick(milliseconds(1500));
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  ASSERT_EQ(done_.count(2), 1u) << "not at its own deadline";
  EXPECT_EQ(done_[2].gang(), 1u) << "root cause first";
}

TEST_F(IslandTest, ADonationWaitsForAnEarlierUnsentReader) {
  Load(1, {0});
  Have(50, {0});
  Have(60, {0});
  Down(1);
  Copy(1, 50, {0}, 51, {2});  // needs both workers
  EXPECT_EQ(SentNodes(0), 0);
  Launch(2, 1, 50, 1, 52);  // reads only
  EXPECT_EQ(SentNodes(0), 1);
  Launch(3, 1, 60, 1, 53, /*donate=*/true);  // of another storage
  EXPECT_EQ(SentNodes(0), 1);
  Launch(4, 1, 50, 1, 54, /*donate=*/true);
  EXPECT_EQ(SentNodes(0), 0);
  Launch(5, 1, 54, 1, 55);  // reads what the donation makes
  EXPECT_EQ(SentNodes(0), 0);
  Up(1, 22);
  std::vector<uint64_t> order;
  for (const auto& [worker, item] : ByWorker(actions_)) {
    if (worker == 0 && item.has_node()) order.push_back(item.node().ordinal());
  }
  EXPECT_THAT(order, ElementsAre(1, 4, 5));
}

TEST_F(IslandTest, ADonationGoesOnWhenTheReaderBeforeItFails_ER2) {
  Load(1, {0});
  Have(50, {0});
  Down(1);
  Copy(1, 50, {0}, 51, {2});
  Launch(2, 1, 50, 1, 52, /*donate=*/true);  // at the same time: both limits pass at once
  Tick(milliseconds(2000));
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(done_.count(2), 0u) << "none of its workers is down";
  Done(0, 2);
  EXPECT_EQ(done_[2].code(), 0);
}

TEST_F(IslandTest, AnExecutableIsKeptForLaunchesThatWaitForAWorker) {
  Load(1, {0});
  Down(0);
  Upload(1, 50, {0});
  Launch(2, 1, 50, 1, 51);
  Unload(1);
  Up(0, 12);
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_load(); }), 1);
  EXPECT_EQ(SentNodes(0), 2);
  ASSERT_TRUE(actions_.to_workers.back().item.has_unload() ||
              actions_.to_workers.back().item.has_release());
  EXPECT_EQ(Sent(0, [](const auto& item) { return item.has_unload(); }), 1);
}

TEST_F(IslandTest, AGangThatLostAWorkerEndsWhenTheOthersAreDone_OB1) {
  Load(1, {0, 2});
  Have(50, {0, 2});
  Launch(1, 1, 50, 2, 51);
  Free({50, 51});
  Down(0);
  EXPECT_EQ(done_.count(1), 0u);
  EXPECT_EQ(SentFrees(1, 50), 0) << "worker 1 still reads it";
  Done(1, 1);
  EXPECT_EQ(done_[1].worker(), "island0/worker0");
  EXPECT_EQ(SentFrees(1, 50), 1);
  ExpectEmpty();
}

TEST_F(IslandTest, ACopyThatLostItsSourceIsCancelledOnTheOtherWorker_ER2) {
  Have(50, {0});
  Copy(1, 50, {0}, 51, {2});
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 1));
  Down(0);
  EXPECT_EQ(Sent(1, [](const auto& item) { return item.has_cancel(); }), 1);
  Done(1, 1);
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kDataLoss));
}

TEST_F(IslandTest, AnUploadWhoseBytesWentToALostWorkerFailsAtOnce_ER1) {
  UploadTo(1, 11, /*next=*/false);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Down(0);
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  UploadTo(2, 11, false);  // the client does not know of the loss yet
  EXPECT_EQ(done_.at(2).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(done_.at(2).worker(), "island0/worker0");
  EXPECT_EQ(done_.at(2).incarnation(), 11u);
  Up(0, 12);
  UploadTo(3, 11, false);
  EXPECT_EQ(done_.at(3).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(SentNodes(0), 1) << "a worker that may hold bytes of it must forget them";
  EXPECT_EQ(SentCancels(0), 1);
  UploadTo(4, 12, false);
  EXPECT_THAT(TakeReleased(), ElementsAre(4));
  Done(0, 4);
  EXPECT_EQ(done_.at(4).code(), 0);
}

TEST_F(IslandTest, AnUploadForTheNextIncarnationWaitsForThatOneOnly) {
  Down(0);
  UploadTo(1, 11, /*next=*/true);
  EXPECT_EQ(done_.count(1), 0u);
  Up(0, 12);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  UploadTo(2, 11, true);  // declared while it was down
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  Down(0);
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  UploadTo(3, 11, true);  // its bytes went to 12
  EXPECT_EQ(done_.at(3).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  UploadTo(4, 12, true);
  Up(0, 13);
  EXPECT_THAT(TakeReleased(), ElementsAre(4));
}

TEST_F(IslandTest, AParkedUploadWhoseOtherWorkerDiesFails_ER1) {
  Down(1);
  wire::IslandItem item = NodeItem(1);
  wire::Upload* upload = item.mutable_node()->mutable_upload();
  upload->set_storage(1);
  *upload->mutable_spec() = Spec({0, 2});
  upload->add_destinations()->set_incarnation(11);
  upload->add_destinations()->set_index(1);
  upload->mutable_destinations(1)->set_incarnation(21);
  upload->mutable_destinations(1)->set_next(true);
  Item(item);
  EXPECT_EQ(done_.count(1), 0u);
  Down(0);
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(done_.at(1).worker(), "island0/worker0");
}

TEST_F(IslandTest, AWaitForBytesEndsAfterTheDeadlineAndNamesTheSession_TM1) {
  Upload(1, 100, {0, 1, 2, 3}, /*session=*/9);
  Done(0, 1);
  Tick(milliseconds(400));
  FromWorker event{1, Incarnation(21), {}};
  event.batch.add_reports()->mutable_staging()->add_ordinals(1);
  Step(event);  // some bytes arrived: the wait restarts
  Tick(milliseconds(499));
  EXPECT_EQ(SentCancels(1), 0);
  EXPECT_EQ(island_->next_deadline(), now_ + milliseconds(1));
  Tick(milliseconds(1));
  EXPECT_EQ(SentCancels(0), 0) << "it has its bytes";
  ASSERT_EQ(SentCancels(1), 1);
  wire::Failure failure = actions_.to_workers.back().item.cancel().failure();
  EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(failure.message(), HasSubstr("session 9"));
  EXPECT_THAT(failure.message(), HasSubstr("island0/worker1"));
  EXPECT_THAT(actions_.notices, ElementsAre(failure.message()));
  Done(1, 1, &failure);
  EXPECT_EQ(done_.at(1).code(), failure.code());
  EXPECT_EQ(island_->next_deadline(), std::nullopt);
}

TEST_F(IslandTest, CancelOfAReleasedUploadReachesTheWorkersThatWait_ER2) {
  Upload(1, 100, {0, 1, 2, 3});
  Done(0, 1);
  Cancel(1);
  EXPECT_EQ(SentCancels(0), 0);
  EXPECT_EQ(SentCancels(1), 1);
}

TEST_F(IslandTest, ReportsOfADeadIncarnationAreIgnored) {
  Load(1, {0});
  Upload(1, 50, {0});
  Down(0);
  Up(0, 12);
  FromWorker late{0, Incarnation(11), {}};
  late.batch.add_reports()->mutable_done()->set_ordinal(1);
  done_.clear();
  Step(std::move(late));
  EXPECT_TRUE(done_.empty());
}

TEST_F(IslandTest, WhatIsInconsistentFailsNodesNotTheProcess) {
  Launch(1, 99, 98, 1, 50);  // no such executable
  EXPECT_EQ(done_[1].code(), static_cast<int>(absl::StatusCode::kNotFound));
  Fetch(2, 98, {0});  // no such storage
  EXPECT_EQ(done_[2].code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Fetch(3, 98, {9});  // no such device
  EXPECT_EQ(done_[3].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  Item(NodeItem(4));  // no kind
  EXPECT_EQ(done_[4].code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  Free({98});
  Unload(99);
  Cancel(97);
  Released(97);
  Done(0, 97);
  Down(5);
  Free({50});
  ExpectEmpty();
}

// A worker tells what its devices hold; the lower of that and the island's budget counts.
TEST_F(IslandTest, ADeviceHasTheBudgetThatItsWorkerTells_GS2) {
  Up(0, 12, /*device_bytes=*/2 * kBytes);
  Upload(1, 100, {0}, kSession, 2 * kBytes + 1);
  EXPECT_EQ(done_.at(1).code(), static_cast<int>(kExhausted));
  EXPECT_THAT(done_.at(1).message(), HasSubstr("33 bytes on each device, the budget is 32"));
  Upload(2, 101, {0}, kSession, 2 * kBytes);
  Upload(3, 102, {2}, kSession, 2 * kBytes + 1);  // of a worker that told nothing
  Load(1, {0}, /*temp_bytes=*/kBytes);
  Launch(4, 1, 101, 1, 103);
  EXPECT_EQ(done_.at(4).code(), static_cast<int>(kExhausted));
  EXPECT_THAT(done_.at(4).message(), HasSubstr("temporaries 16"));
  EXPECT_EQ(done_.count(2) + done_.count(3), 0u);
  EXPECT_EQ(island_->ledger().budget_bytes(IslandDevice(0)), 2 * kBytes);
  EXPECT_EQ(island_->ledger().budget_bytes(IslandDevice(2)), 0u);
}

TEST_F(IslandTest, TheLowerBudgetCounts_GS2) {
  Make(/*budget_bytes=*/3 * kBytes);
  Up(0, 12, /*device_bytes=*/2 * kBytes);
  Up(1, 22, /*device_bytes=*/4 * kBytes);
  EXPECT_EQ(island_->ledger().budget_bytes(IslandDevice(0)), 2 * kBytes);
  EXPECT_EQ(island_->ledger().budget_bytes(IslandDevice(2)), 3 * kBytes);
  Up(0, 13);
  EXPECT_EQ(island_->ledger().budget_bytes(IslandDevice(0)), 3 * kBytes);
}

// `gangway why`: what each node waits for, by name.
class ExplainTest : public IslandTest {
 protected:
  // The wait of a gang, and the chain of waits behind it.
  wire::WhyReply Explain(uint64_t gang, milliseconds since_heard = milliseconds(0)) {
    wire::WhyRequest request;
    request.set_gang(gang);
    wire::WhyReply reply;
    island_->Explain(request, now_, {now_ - since_heard, now_ - since_heard}, reply);
    return reply;
  }
  wire::Wait First(uint64_t gang) {
    wire::WhyReply reply = Explain(gang);
    return reply.waits_size() == 0 ? wire::Wait() : reply.waits(0);
  }
};

TEST_F(ExplainTest, AGangThatWaitsForMemoryNamesTheSizesAndTheHolders_GS2) {
  Make(/*budget_bytes=*/2 * kBytes);
  Load(1, {0});
  Have(1, {0}, /*session=*/3);
  Have(2, {0}, /*session=*/4);
  Launch(10, 1, 1, 1, 5);
  Tick(milliseconds(700));
  const wire::Wait wait = First(10);
  EXPECT_EQ(wait.reason(), wire::Wait::REASON_MEMORY);
  EXPECT_EQ(wait.program(), "step");
  EXPECT_EQ(wait.source(), "train.py:42");
  EXPECT_EQ(wait.session(), kSession);
  EXPECT_EQ(wait.waited_ms(), 700u);
  EXPECT_EQ(wait.limit_ms(), 3000u);
  EXPECT_EQ(wait.needed_bytes(), kBytes);
  EXPECT_EQ(wait.used_bytes(), 2 * kBytes);
  EXPECT_EQ(wait.budget_bytes(), 2 * kBytes);
  ASSERT_EQ(wait.holders_size(), 2);
  EXPECT_EQ(wait.holders(0).session(), 3u);
  EXPECT_EQ(wait.holders(1).session(), 4u);
}

TEST_F(ExplainTest, AChainLeadsToTheUploadWhoseBytesDoNotCome) {
  Load(1, {0, 1});
  Upload(10, 1, {0, 1});
  Launch(11, 1, 1, 2, 2);
  Launch(12, 1, 2, 2, 3);
  Tick(milliseconds(300));
  const wire::WhyReply reply = Explain(12);
  ASSERT_EQ(reply.waits_size(), 3);
  EXPECT_EQ(reply.waits(0).reason(), wire::Wait::REASON_INPUT);
  EXPECT_EQ(reply.waits(0).for_gang(), 11u);
  EXPECT_EQ(reply.waits(0).for_program(), "step");
  EXPECT_EQ(reply.waits(0).for_source(), "train.py:42");
  EXPECT_EQ(reply.waits(1).for_gang(), 10u);
  EXPECT_EQ(reply.waits(2).reason(), wire::Wait::REASON_UPLOAD_BYTES);
  EXPECT_EQ(reply.waits(2).waited_ms(), 300u);
  EXPECT_THAT(reply.waits(2).workers(), ElementsAre("island0/worker0"));
}

TEST_F(ExplainTest, ABusyDeviceNamesTheGangThatHasIt) {
  Make(/*budget_bytes=*/0, /*window=*/1);
  Load(1, {0});
  Have(1, {0});
  Launch(10, 1, 1, 1, 2);
  Launch(11, 1, 1, 1, 3);
  Launch(12, 1, 1, 1, 4);
  Tick(milliseconds(9000));
  const wire::Wait running = First(10);
  EXPECT_EQ(running.reason(), wire::Wait::REASON_EXECUTING);
  EXPECT_EQ(running.waited_ms(), 9000u);
  EXPECT_EQ(running.for_gang(), 0u);
  EXPECT_THAT(running.devices(), ElementsAre(0u));
  EXPECT_EQ(First(11).reason(), wire::Wait::REASON_SLOTS);
  EXPECT_EQ(First(11).for_gang(), 10u);
  EXPECT_EQ(First(12).reason(), wire::Wait::REASON_EARLIER_GANG);
  EXPECT_EQ(First(12).for_gang(), 11u);
  EXPECT_EQ(First(12).for_session(), kSession);
}

TEST_F(ExplainTest, APutThatIsHeldBackNamesTheOneThatItsWorkerHas) {
  put_cost_max_ = kPutCost;
  Make();
  Put(10, 51, 52, {2});
  Put(11, 53, 53, {0, 2});
  Put(12, 54, 54, {1});
  EXPECT_EQ(First(11).reason(), wire::Wait::REASON_EARLIER_GANG);
  EXPECT_EQ(First(11).for_gang(), 10u);
  EXPECT_THAT(First(11).devices(), ElementsAre(2u));
  EXPECT_EQ(First(12).reason(), wire::Wait::REASON_EXECUTING);
}

TEST_F(ExplainTest, AGangThatTheRuntimeRunsInItsTurnNamesTheOneBeforeIt) {
  for (const bool take_turns : {false, true}) {
    for (const bool has_collectives : {false, true}) {
      Make();
      Up(0, 12, 0, take_turns);
      Load(1, {0}, 0, 0, kBytes, has_collectives);
      Load(2, {1}, 0, 0, kBytes, has_collectives);
      Have(1, {0});
      Have(2, {1});
      Launch(10, 1, 1, 1, 3);
      Launch(11, 2, 2, 1, 4);
      const bool waits = take_turns && has_collectives;
      EXPECT_EQ(First(11).reason(),
                waits ? wire::Wait::REASON_RUNTIME_TURN : wire::Wait::REASON_EXECUTING);
      EXPECT_EQ(First(11).for_gang(), waits ? 10u : 0u);
      EXPECT_EQ(First(11).for_program(), waits ? "step" : "");
      EXPECT_EQ(First(10).reason(), wire::Wait::REASON_EXECUTING);
    }
  }
}

TEST_F(ExplainTest, ASilentWorkerIsToldFromAStuckOne_TM1) {
  Load(1, {0});
  Have(1, {0});
  Launch(10, 1, 1, 1, 2);
  EXPECT_EQ(Explain(10, milliseconds(600)).waits(0).reason(), wire::Wait::REASON_EXECUTING);
  const wire::WhyReply silent = Explain(10, milliseconds(2100));
  EXPECT_EQ(silent.waits(0).reason(), wire::Wait::REASON_WORKER_SILENT);
  EXPECT_EQ(silent.waits(0).waited_ms(), 2100u);
  EXPECT_THAT(silent.waits(0).workers(), ElementsAre("island0/worker0"));
}

TEST_F(ExplainTest, AStuckDeviceIsReportedOnceAndAgainWhenItGoesOn_TM1) {
  Load(1, {1});
  Have(1, {1});
  Launch(10, 1, 1, 1, 2);
  Launch(11, 1, 1, 1, 3);
  WorkerBeat beat{0, Incarnation(11), {}};
  wire::StuckDevice* stuck = beat.beat.add_stuck();
  stuck->set_device(1);
  stuck->set_gang(10);
  stuck->set_for_ms(3000);
  now_ += milliseconds(3000);
  Step(beat);
  ASSERT_EQ(actions_.notices.size(), 1u);
  for (const char* word :
       {"device 1 of island0/worker0", "gang 10 (step at train.py:42)", "session 7"})
    EXPECT_THAT(actions_.notices[0], HasSubstr(word));
  ASSERT_EQ(actions_.to_controller.size(), 1u);
  EXPECT_EQ(actions_.to_controller[0].worker_state().stuck(0).device(), 1u);
  EXPECT_TRUE(actions_.to_controller[0].worker_state().up());
  stuck->set_for_ms(3500);
  now_ += milliseconds(500);
  Step(beat);
  EXPECT_THAT(actions_.notices, IsEmpty());
  EXPECT_THAT(actions_.to_controller, IsEmpty());
  const wire::WhyReply reply = Explain(11);
  ASSERT_EQ(reply.waits_size(), 2);
  EXPECT_EQ(reply.waits(0).reason(), wire::Wait::REASON_EXECUTING);
  EXPECT_EQ(reply.waits(0).for_gang(), 10u);
  EXPECT_EQ(reply.waits(1).reason(), wire::Wait::REASON_STUCK);
  EXPECT_EQ(reply.waits(1).waited_ms(), 3500u);
  EXPECT_THAT(reply.waits(1).devices(), ElementsAre(1u));
  EXPECT_THAT(reply.waits(1).workers(), ElementsAre("island0/worker0"));
  beat.beat.clear_stuck();
  Step(beat);
  ASSERT_EQ(actions_.notices.size(), 1u);
  EXPECT_THAT(actions_.notices[0], HasSubstr("resumed"));
  EXPECT_EQ(actions_.to_controller[0].worker_state().stuck_size(), 0);
  EXPECT_EQ(First(10).reason(), wire::Wait::REASON_EXECUTING);
  Step(WorkerBeat{0, Incarnation(99), {}});  // of an incarnation that is gone
  EXPECT_THAT(actions_.to_controller, IsEmpty());
}

TEST_F(ExplainTest, AWorkerThatIsDownIsNamedWithAndWithoutWork_TM1) {
  Down(1);
  Upload(10, 1, {2});
  EXPECT_EQ(First(10).reason(), wire::Wait::REASON_WORKER_DOWN);
  EXPECT_EQ(First(10).limit_ms(), 2000u);
  wire::WhyReply reply;
  island_->Explain({}, now_, {now_, now_ - milliseconds(50)}, reply);
  ASSERT_EQ(reply.waits_size(), 2);
  EXPECT_EQ(reply.waits(1).kind(), wire::Wait::KIND_WORKER);
  EXPECT_THAT(reply.waits(1).workers(), ElementsAre("island0/worker1"));
}

TEST_F(ExplainTest, ADonationWaitsForAReaderAndACopyForItsIsland) {
  Make(/*budget_bytes=*/0, /*window=*/1);
  Load(1, {0});
  Have(1, {0});
  Have(2, {0});
  Launch(10, 1, 2, 1, 5);
  Launch(11, 1, 1, 1, 6);  // reads 1, has no slot
  Launch(12, 1, 1, 1, 7, /*donate=*/true);
  EXPECT_EQ(First(12).reason(), wire::Wait::REASON_READERS);
  EXPECT_EQ(First(12).for_gang(), 11u);
  Copy(13, 9, {4}, 10, {2});
  EXPECT_EQ(First(13).reason(), wire::Wait::REASON_OTHER_ISLAND);
}

TEST_F(ExplainTest, ManyWaitsAreCutAndCounted_TM2) {
  Load(1, {0});
  Upload(1, 1, {0});
  for (uint64_t i = 2; i <= 400; ++i) Launch(i, 1, 1, 1, i);
  wire::WhyReply reply;
  island_->Explain({}, now_, {now_, now_}, reply);
  EXPECT_EQ(reply.waits_size(), 256);
  EXPECT_EQ(reply.left_out(), 144u);
}

}  // namespace
}  // namespace gangway::scheduler
