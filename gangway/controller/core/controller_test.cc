// The controller core alone: handles, references, awaits, copies between islands, session ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/controller_test_util.h"
#include "gangway/wire/failure.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Gangs over several islands ---

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

// --- Handles ---

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

TEST_F(ControllerTest, CallsThatDoNotFitSayWhy) {
  HaveProgram(5, {0});
  Have(10, {0});
  Have(11, {1});
  EXPECT_EQ(Call(5, {10, 10}, {20}), 0u);
  EXPECT_THAT(Await({20})->message(),
              HasSubstr("takes 1 arguments and gives 1 results, the call has 2 and 1"));
  EXPECT_EQ(Call(5, {11}, {21}), 0u);
  EXPECT_THAT(Await({21})->message(),
              HasSubstr("argument 0 is on devices 1, the program runs on devices 0"));
  EXPECT_EQ(Await({21})->program(), "step");
  wire::Op upload;
  upload.mutable_upload()->set_array(12);
  upload.mutable_upload()->set_upload(12);
  upload.mutable_upload()->mutable_spec()->set_element_type(4);
  upload.mutable_upload()->mutable_spec()->add_shard_dims(3);
  upload.mutable_upload()->mutable_spec()->set_shard_bytes(12);
  upload.mutable_upload()->mutable_spec()->add_devices(0);
  EXPECT_NE(OrdinalOf(std::move(upload), 1), 0u);
  EXPECT_EQ(Call(5, {12}, {25}), 0u);
  EXPECT_THAT(Await({25})->message(),
              HasSubstr("has shards of s32[3], the program was compiled for f32[2]: convert"));
  EXPECT_EQ(Copy(10, 22, {99}), 0u);
  EXPECT_THAT(Await({22})->message(), HasSubstr("device 99 is not part of this cluster"));
  EXPECT_EQ(Upload(24, {1, 1}), 0u);
  EXPECT_THAT(Await({24})->message(), HasSubstr("device 1 twice"));
  EXPECT_EQ(Copy(10, 23, {0, 1}), 0u);
  EXPECT_THAT(Await({23})->message(), HasSubstr("keeps the number of shards"));
}

TEST_F(ControllerTest, UseAfterDonationIsRefused_OB1) {
  HaveProgram(5, {0}, /*donates=*/true);
  Have(10, {0});
  Regroup(11, {{10, 0}});
  EXPECT_NE(Call(5, {10}, {20}), 0u);
  EXPECT_EQ(Freed(0).size(), 1u) << "the launch frees the shards, though handles are left";
  for (uint64_t handle : {10, 11}) {
    EXPECT_EQ(Call(5, {handle}, {handle + 100}), 0u);
    EXPECT_THAT(Await({handle + 100})->message(), HasSubstr("deleted or donated"));
  }
  items_.clear();
  Drop({10, 11});
  EXPECT_THAT(Freed(0), IsEmpty()) << "once";
}

TEST_F(ControllerTest, ADonatedArgumentMustNotBeUsedTwiceByItsCall) {
  HaveProgram(5, {0});
  wire::Op op;
  op.mutable_compile()->set_executable(6);
  op.mutable_compile()->add_devices(0);
  Do(op);
  FromCompiler result;
  result.result.set_request(requests_.back().request());
  for (int i = 0; i < 2; ++i) {
    wire::TensorSpec* spec = result.result.mutable_info()->add_parameters();
    spec->set_element_type(11);
    spec->add_shard_dims(2);
  }
  result.result.mutable_info()->add_donated(0);
  Step(result);
  Have(10, {0});
  Regroup(11, {{10, 0}});
  EXPECT_EQ(Call(6, {10, 11}, {}), 0u);
  EXPECT_EQ(Await({10})->code(), 0) << "nothing was consumed";
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
  ASSERT_EQ(copy.source().runs_size(), 1);
  EXPECT_EQ(copy.source().runs(0).first(), 3u);
  EXPECT_EQ(copy.source_spec().devices(0), 3u);
  Regroup(14, {{11, 5}});
  EXPECT_THAT(Await({14})->message(), HasSubstr("has 3 shards, shard 5 was requested"));
}

TEST_F(ControllerTest, MessagesDoNotDependOnTheNumberOfShards_DF1) {
  for (const Devices& devices : {Devices{0}, Devices{0, 1, 2, 3}}) {
    uint64_t base = 100 * devices.size();
    items_.clear();
    Upload(base, devices);
    Copy(base, base + 1, devices);
    EXPECT_EQ(items_.size(), 2u);
  }
}

// --- Awaits, fetches ---

// --- Shards alone ---

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

TEST_F(ControllerTest, AnArgumentMayBeAListOfShards) {
  HaveProgram(50, {0, 1});
  Have(10, {0, 1});
  Have(11, {1, 0});
  const uint64_t ordinal = CallGathered(50, {{10, 0}, {11, 0}}, 20);
  ASSERT_NE(ordinal, 0u);
  const wire::Launch& launch = items_[0].second.node().launch();
  ASSERT_EQ(launch.arguments(0).runs_size(), 2);
  EXPECT_EQ(launch.arguments(0).runs(0).storage(), 1u);
  EXPECT_EQ(launch.arguments(0).runs(1).storage(), 2u);
  Done(0, ordinal);
  EXPECT_EQ(Await({20})->code(), 0);
}

TEST_F(ControllerTest, AListOfShardsThatDoesNotFitIsRefused) {
  HaveProgram(50, {0, 1});
  Have(10, {0, 1});
  Have(11, {0});
  const std::vector<std::vector<std::pair<uint64_t, uint32_t>>> wrong = {{},
                                                                         {{10, 0}},
                                                                         {{10, 0}, {10, 2}},
                                                                         {{10, 1}, {10, 0}},
                                                                         {{10, 0}, {11, 0}},
                                                                         {{10, 0}, {99, 0}}};
  uint64_t result = 20;
  for (const auto& shards : wrong) {
    EXPECT_EQ(CallGathered(50, shards, ++result), 0u);
    EXPECT_EQ(Await({result})->code(), static_cast<int>(StatusCode::kInvalidArgument));
  }
  wire::Op op = GatheredCall(50, {{10, 0}, {10, 1}}, 30);
  op.mutable_call()->set_arguments(0, 10);  // an array and a list
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
  op = GatheredCall(50, {{10, 0}, {10, 1}}, 31);
  op.mutable_call()->mutable_gathered(0)->set_argument(9);
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
}

TEST_F(ControllerTest, DonationConsumesTheNamedShardsOnly_OB1) {
  HaveProgram(50, {0, 1}, /*donates=*/true);
  Have(10, {0, 1});
  Have(11, {0, 1});
  ASSERT_NE(CallGathered(50, {{10, 0}, {11, 1}}, 20), 0u);
  EXPECT_THAT(FreedShards(), ElementsAre("1:0+1", "2:1+1"));
  for (uint64_t whole : {10, 11}) EXPECT_NE(Await({whole})->code(), 0);
  ASSERT_NE(CallGathered(50, {{11, 0}, {10, 1}}, 21), 0u);
  EXPECT_EQ(CallGathered(50, {{11, 0}, {10, 1}}, 22), 0u);  // gone
  Drop({10, 11, 20, 21, 22});
}

// --- Ends ---

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

TEST_F(ControllerTest, AFetchOfWhatIsSpoiledFails_ER1) {
  Done(0, Upload(10, {0}), "no bytes came");
  wire::Op op;
  op.mutable_fetch()->set_fetch(70);
  op.mutable_fetch()->add_arrays(10);
  op.mutable_fetch()->add_shards(0);
  EXPECT_EQ(OrdinalOf(op, 1), 0u);
  ASSERT_TRUE(events_.back().second.has_fetch_failed());
  EXPECT_EQ(events_.back().second.fetch_failed().failure().message(), "no bytes came");
}

// --- Islands ---

TEST_F(ControllerTest, ACopyBetweenIslandsIsReleasedThereOnceItsSourcesAre_GS4) {
  Have(10, {0, 4});
  uint64_t ordinal = Copy(10, 11, {4, 0});  // both ways
  EXPECT_EQ(items_.size(), 2u) << "one message per island";
  items_.clear();
  wire::Report released;
  released.mutable_released()->add_ordinals(ordinal);
  Report(0, released);
  EXPECT_THAT(items_, IsEmpty());
  Report(1, released);
  ASSERT_EQ(items_.size(), 2u);
  for (const auto& [island, item] : items_)
    EXPECT_THAT(item.released().ordinals(), ElementsAre(ordinal));
  items_.clear();
  Report(1, released);
  EXPECT_THAT(items_, IsEmpty());
}

TEST_F(ControllerTest, OnlyCopiesBetweenWorkersGetATokenAndEachItsOwn) {
  Have(10, {0, 1});
  items_.clear();
  Copy(10, 11, {1, 0});
  Copy(10, 12, {2, 0});
  Copy(10, 13, {4, 5});
  std::vector<std::string> tokens;
  for (const auto& [island, item] : items_) tokens.push_back(item.node().copy().token());
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokens[0], "") << "no byte leaves the worker";
  EXPECT_NE(tokens[1], "");
  EXPECT_NE(tokens[2], tokens[1]);
  EXPECT_EQ(tokens[2], tokens[3]) << "both islands of one copy";
}

TEST_F(ControllerTest, AReleaseNamesTheProcessesThatHoldTheShards) {
  wire::Report up;
  up.mutable_worker_state()->set_up(true);
  up.mutable_worker_state()->mutable_worker()->set_incarnation(31);
  up.mutable_worker_state()->mutable_worker()->set_data_address("somewhere:1");
  Report(0, up);
  Have(10, {0, 2});
  uint64_t ordinal = Copy(10, 11, {4, 3});  // from worker 0 to island 1; the other shard stays
  items_.clear();
  wire::Report released;
  released.mutable_released()->add_ordinals(ordinal);
  Report(0, released);
  ASSERT_EQ(items_.size(), 2u);
  for (const auto& [island, item] : items_) {
    ASSERT_EQ(item.released().sources_size(), 1);
    EXPECT_EQ(item.released().sources(0).incarnation(), 31u);
    EXPECT_EQ(item.released().sources(0).data_address(), "somewhere:1");
    EXPECT_THAT(item.released().sources(0).devices(), ElementsAre(0, 1));
  }
}

TEST_F(ControllerTest, AHalfThatFailsCancelsTheOther_ER2) {
  Have(10, {0});
  uint64_t ordinal = Copy(10, 11, {4});
  items_.clear();
  Done(0, ordinal, "no source");
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 1u);
  EXPECT_THAT(items_[0].second.cancel().ordinals(), ElementsAre(ordinal));
  EXPECT_FALSE(Await({11}).has_value()) << "the other half has not ended";
  Done(1, ordinal, "cancelled");
  EXPECT_EQ(Awaited(1001)->message(), "no source") << "root cause first (ER-1)";
}

TEST_F(ControllerTest, AnAbandonedUploadIsCancelledWhereItWaits_TM1) {
  auto abandon = [this](uint64_t upload, uint64_t session) {
    wire::Op op;
    op.mutable_abandon()->set_upload(upload);
    *op.mutable_abandon()->mutable_failure() =
        wire::MakeFailure(StatusCode::kDataLoss, "the data stream was lost");
    items_.clear();
    events_.clear();
    Do(std::move(op), session);
  };
  const uint64_t ordinal = Upload(10, {0, 4});
  abandon(10, 2);
  abandon(11, 1);
  EXPECT_TRUE(items_.empty()) << "not that session's, or no upload";
  Done(0, ordinal);  // all of its bytes had come there
  abandon(10, 1);
  ASSERT_EQ(items_.size(), 1u);
  EXPECT_EQ(items_[0].first, 1u);
  EXPECT_THAT(items_[0].second.cancel().ordinals(), ElementsAre(ordinal));
  Done(1, ordinal, "cancelled");
  EXPECT_EQ(Await({10})->message(), "the data stream was lost");
  EXPECT_EQ(events_[0].second.upload_failed().upload(), 10u);
  Have(12, {0});
  abandon(12, 1);  // it has ended
  EXPECT_EQ(Await({12})->code(), 0);
}

TEST_F(ControllerTest, AnUploadNeedsANumberOfItsOwn) {
  auto upload = [this](uint64_t handle, uint64_t number) {
    wire::Op op;
    op.mutable_upload()->set_array(handle);
    op.mutable_upload()->set_upload(number);
    op.mutable_upload()->mutable_spec()->add_devices(0);
    return OrdinalOf(std::move(op), 1);
  };
  EXPECT_EQ(upload(10, 0), 0u);
  const uint64_t first = upload(11, 7);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(upload(12, 7), 0u);
  wire::Op abandon;
  for (uint64_t number : {0, 7, 7, 8}) {
    abandon.mutable_abandon()->set_upload(number);
    Do(abandon);
  }
  Done(0, first, "cancelled");
  for (uint64_t number : {0, 7, 7, 8}) {
    abandon.mutable_abandon()->set_upload(number);
    Do(abandon);
  }
  EXPECT_EQ(Await({10})->code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_EQ(Await({11})->code(), static_cast<int>(StatusCode::kCancelled));
  EXPECT_EQ(Await({12})->code(), static_cast<int>(StatusCode::kInvalidArgument));
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

// --- Remote schedulers ---

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

// --- Sessions ---

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

TEST_F(ControllerTest, ExplainFindsTheGangThatMakesAnArrayAndTheCompilesThatWait) {
  const uint64_t ordinal = Upload(5, {0});
  wire::WhyRequest request;
  request.set_array(5);
  wire::WhyReply reply;
  EXPECT_TRUE(controller_->Explain(request, now_, reply));
  EXPECT_EQ(request.gang(), ordinal);
  Done(0, ordinal);
  EXPECT_FALSE(controller_->Explain(request, now_, reply));
  EXPECT_THAT(reply.remarks(0), HasSubstr("array 5 of session 1 is ready"));
  Step(CompilerDown{});
  Compile(6, {0}, 2);
  now_ += milliseconds(400);
  wire::WhyRequest all;
  reply.Clear();
  EXPECT_TRUE(controller_->Explain(all, now_, reply));
  ASSERT_EQ(reply.waits_size(), 1);
  EXPECT_EQ(reply.waits(0).session(), 2u);
  EXPECT_EQ(reply.waits(0).waited_ms(), 400u);
  EXPECT_THAT(reply.waits(0).workers(), ElementsAre("compiler"));
}

TEST_F(ControllerTest, ExplainSaysWhatIsUnknown) {
  for (auto set : {&wire::WhyRequest::set_session, &wire::WhyRequest::set_gang,
                   &wire::WhyRequest::set_array}) {
    wire::WhyRequest request;
    (request.*set)(4711);
    wire::WhyReply reply;
    EXPECT_FALSE(controller_->Explain(request, now_, reply));
    EXPECT_THAT(reply.remarks(0), HasSubstr("4711"));
  }
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

TEST_F(ControllerTest, ASessionThatBeginsWithoutAWorkerIsToldSo) {
  for (uint32_t island : {0, 1})
    for (uint32_t worker : {0, 1}) BringUp(island, worker, 5);
  EXPECT_FALSE(controller_->AwaitsFirstStart());
  LoseWorker(0, 1);
  EXPECT_FALSE(controller_->AwaitsFirstStart()) << "it was up before";
  wire::Topology topology;
  controller_->FillTopology(topology);
  ASSERT_EQ(topology.workers_size(), 3);
  EXPECT_EQ(topology.workers(1).island(), 1u);
  EXPECT_THAT(topology.absent(), testing::ElementsAre("island0/worker1 (devices 2, 3)"));
  BringUp(0, 1, 6);
  topology.Clear();
  controller_->FillTopology(topology);
  EXPECT_EQ(topology.workers_size(), 4);
  EXPECT_THAT(topology.absent(), IsEmpty());
}

// The worker 0 of island 0 dies with these launches on its devices.
TEST_F(ControllerTest, AProgramThatEndsWorkersRunsAloneAndIsThenRefused_ER2) {
  auto die_with = [this](const std::vector<uint64_t>& gangs) {
    wire::Report report;
    wire::WorkerState* state = report.mutable_worker_state();
    for (uint32_t device : {0, 1}) state->mutable_worker()->add_devices(device);
    state->mutable_gangs()->Add(gangs.begin(), gangs.end());
    *state->mutable_failure() = wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
    Report(0, std::move(report));
    for (uint64_t gang : gangs) Done(0, gang, "the worker is gone");
    BringUp(0, 0, 5);
  };
  auto is_alone = [this] { return items_.back().second.node().launch().alone(); };
  Have(1, {2});
  HaveProgram(5, {2}, false, 1);
  HaveProgram(6, {2}, false, 1);
  const uint64_t bad = Call(5, {1}, {10}), good = Call(6, {1}, {11});
  EXPECT_FALSE(is_alone());
  die_with({bad, good});
  const uint64_t good_again = Call(6, {1}, {12});
  EXPECT_TRUE(is_alone());
  Done(0, good_again);
  EXPECT_NE(Call(6, {1}, {13}), 0u);
  EXPECT_FALSE(is_alone()) << "it has run well alone";
  const uint64_t bad_again = Call(5, {1}, {14});
  EXPECT_TRUE(is_alone());
  die_with({bad_again});
  EXPECT_EQ(Call(5, {1}, {15}), 0u);
  EXPECT_EQ(Await({15})->code(), static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Await({15})->message(), HasSubstr("quarantined"));
  EXPECT_NE(Call(6, {1}, {16}), 0u) << "another program of the same session";
  now_ += std::chrono::minutes(10);
  EXPECT_NE(Call(5, {1}, {17}), 0u) << "after the quarantine";
}

TEST_F(ControllerTest, AProgramThatIsAbandonedAgainAndAgainIsRefused_ER2) {
  const auto launch = [this](uint64_t session) {
    Step(SessionOpened{SessionId(session), "script"});
    Compile(5, {0, 1}, session);
    FromCompiler compiled;
    compiled.result.set_request(requests_.back().request());
    compiled.result.mutable_info()->set_fingerprint("endless");
    compiled.result.mutable_info()->add_results()->set_shard_bytes(8);
    Step(std::move(compiled));
    return Call(5, {}, {10}, session);
  };
  const auto end_session = [this](uint64_t session) { Step(SessionLost{SessionId(session)}); };
  // Its worker is told to end, and says so.
  const auto abandon = [&, this](uint64_t session) {
    const uint64_t gang = launch(session);
    end_session(session);
    for (int again = 0; again < 2; ++again) {  // as if it had held devices of two workers
      wire::Report report;
      report.mutable_worker_state()->set_held_by(gang);
      *report.mutable_worker_state()->mutable_failure() =
          wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
      BringUp(0, 0, 2 * session + again);
      Report(0, std::move(report));
    }
    for (const auto& [to, event] : events_) EXPECT_FALSE(event.worker_state().has_held_by());
    Done(0, gang, "the worker is gone");
    BringUp(0, 0, 2 * session + 2);
    return gang != 0;
  };
  EXPECT_TRUE(abandon(11));
  EXPECT_TRUE(abandon(12));
  Done(0, launch(13));  // it ends, and is cleared
  end_session(13);
  for (uint64_t session : {14, 15, 16}) EXPECT_TRUE(abandon(session)) << session;
  EXPECT_EQ(launch(17), 0u);
  EXPECT_EQ(Await({10}, 17)->code(), static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Await({10}, 17)->message(), HasSubstr("no session waited for it any more"));
  now_ += std::chrono::minutes(10);
  for (uint64_t session : {1, 2, 17}) end_session(session);
  for (uint64_t session = 20; session < 26; ++session)
    EXPECT_TRUE(abandon(session)) << "it is alone, and takes nothing from others";
}

// Four programs of one certificate's sessions each crash the worker 0 of island 0, and its compiler five times.
TEST_F(ControllerTest, AnOwnersNextSessionDoesNotStartClean) {
  const auto open = [this](uint64_t session, const std::string& owner) {
    Step(SessionOpened{SessionId(session), "script", /*wants_ends=*/false, owner});
    wire::Op op;
    op.mutable_compile()->set_executable(5);
    op.mutable_compile()->add_devices(0);
    op.mutable_compile()->set_program(absl::StrCat("program of ", session));
    Do(std::move(op), session);
  };
  const auto run = [this](uint64_t session) {
    FromCompiler compiled;
    compiled.result.set_request(requests_.back().request());
    compiled.result.mutable_info()->set_fingerprint(absl::StrCat("program of ", session));
    compiled.result.mutable_info()->add_results()->set_shard_bytes(8);
    Step(std::move(compiled));
    return Call(5, {}, {10}, session);
  };
  for (uint64_t session = 11; session <= 14; ++session) {
    open(session, "client/a");
    wire::Report report;
    report.mutable_worker_state()->add_gangs(run(session));
    *report.mutable_worker_state()->mutable_failure() =
        wire::MakeFailure(StatusCode::kDataLoss, "the worker is gone");
    const uint64_t gang = report.worker_state().gangs(0);
    EXPECT_NE(gang, 0u) << session;
    BringUp(0, 0, 2 * session);
    Report(0, std::move(report));
    Done(0, gang, "the worker is gone");
    BringUp(0, 0, 2 * session + 1);
    Step(SessionLost{SessionId(session)});
  }
  open(20, "client/a");
  EXPECT_EQ(run(20), 0u);
  EXPECT_THAT(Await({10}, 20)->message(), HasSubstr("client/a is quarantined"));
  open(21, "client/b");
  EXPECT_NE(run(21), 0u);
  for (uint64_t session = 30; session < 35; ++session) {
    open(session, "client/a");
    Step(CompilerDown{});
    Step(SessionLost{SessionId(session)});
    Step(CompilerUp{session});
  }
  open(40, "client/a");
  ASSERT_FALSE(CompiledEvents(5).empty());
  EXPECT_THAT(CompiledEvents(5).back().failure().message(),
              HasSubstr("client/a may compile nothing"));
}

TEST_F(ControllerTest, CallbacksNestToALimit) {
  Have(1, {2});
  Compile(5, {2});
  FromCompiler compiled;
  compiled.result.set_request(requests_.back().request());
  compiled.result.mutable_info()->set_name("step");
  compiled.result.mutable_info()->set_calls_host(true);
  Step(std::move(compiled));
  auto call = [this](uint32_t depth, uint64_t executable) {
    wire::Op op;
    op.mutable_call()->set_executable(executable);
    op.mutable_call()->set_callback_depth(depth);
    return OrdinalOf(std::move(op), 1);
  };
  EXPECT_NE(call(3, 5), 0u);
  EXPECT_EQ(items_.back().second.node().launch().callback_depth(), 3u);
  const uint64_t before = items_.size();
  EXPECT_EQ(call(4, 5), 0u);
  EXPECT_EQ(items_.size(), before);
  Compile(6, {2});
  FromCompiler plain;
  plain.result.set_request(requests_.back().request());
  Step(std::move(plain));
  EXPECT_NE(call(4, 6), 0u) << "a program without callbacks";
}

TEST_F(ControllerTest, WhatIsAbsentIsNamedAndEachChangeIsSaid) {
  const std::string all = "island0/worker0, island0/worker1, island1/worker0, island1/worker1";
  EXPECT_EQ(controller_->AbsentProcesses(), all);
  Step(CompilerDown{});
  EXPECT_TRUE(actions_.presence_changed);
  EXPECT_EQ(controller_->AbsentProcesses(), all + ", the compiler");
  Step(CompilerUp{2});
  EXPECT_TRUE(actions_.presence_changed);
  for (uint32_t i = 0; i < 4; ++i) {
    BringUp(i / 2, i % 2, 1);
    EXPECT_TRUE(actions_.presence_changed);
  }
  EXPECT_EQ(controller_->AbsentProcesses(), "");
  BringUp(1, 0, 1);  // its scheduler repeats what it has said
  EXPECT_FALSE(actions_.presence_changed);
  Have(1, {0});
  EXPECT_FALSE(actions_.presence_changed);
  LoseWorker(1, 0, 1);
  EXPECT_TRUE(actions_.presence_changed);
  EXPECT_EQ(controller_->AbsentProcesses(), "island1/worker0");
}

TEST(AbsentProcessesTest, ManyWorkersAreCounted) {
  ControllerConfig config;
  for (uint32_t i = 0; i < 4096; ++i) {
    wire::Worker& worker = config.workers.emplace_back();
    worker.set_index(i);
    worker.add_devices(i);
  }
  const std::string absent = Controller(config).AbsentProcesses();
  EXPECT_THAT(absent, testing::StartsWith("island0/worker0, island0/worker1, "));
  EXPECT_THAT(absent, testing::EndsWith("island0/worker15, 4080 more workers, the compiler"));
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
