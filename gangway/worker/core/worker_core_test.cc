// Tests of worker_core.h.
#include "gangway/worker/core/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gangway/wire/failure.h"
#include "gangway/worker/core/core_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSession(3);
constexpr uint64_t kExecutable = 90;

// A worker with two devices, global ids 10 and 11.
class WorkerCoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::IslandItem open;
    open.mutable_open_devices()->add_devices(10);
    open.mutable_open_devices()->add_devices(11);
    Item(open);
    LoadProgram(kExecutable, {10, 11}, 1);
  }

  std::vector<Action> Item(wire::IslandItem item) {
    return Keep(core_.Step(ItemArrived{std::move(item)}));
  }
  std::vector<Action> Keep(std::vector<Action> actions) {
    log_.insert(log_.end(), actions.begin(), actions.end());
    return actions;
  }

  void LoadProgram(uint64_t id, std::vector<uint32_t> devices, int results) {
    wire::IslandItem item;
    wire::Load& load = *item.mutable_load();
    load.set_executable(id);
    load.set_name("step");
    load.set_source("train.py:42");
    load.mutable_devices()->Add(devices.begin(), devices.end());
    for (int i = 0; i < results; ++i) load.add_results()->set_shard_bytes(16);
    Item(item);
  }

  static wire::ArraySpec Spec(std::vector<uint32_t> devices) {
    wire::ArraySpec spec;
    spec.set_element_type(11);
    spec.add_shard_dims(4);
    spec.set_shard_bytes(16);
    spec.mutable_devices()->Add(devices.begin(), devices.end());
    return spec;
  }
  static wire::ArrayRef Ref(uint64_t storage, uint32_t count = 2, uint32_t first = 0) {
    return RefTo(storage, count, first);
  }
  static wire::IslandItem NodeItem(uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_node()->set_ordinal(ordinal);
    item.mutable_node()->set_session(kSession.number());
    return item;
  }

  std::vector<Action> Upload(uint64_t ordinal, uint64_t storage, uint64_t upload) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Upload& body = *item.mutable_node()->mutable_upload();
    body.set_storage(storage);
    body.set_upload(upload);
    *body.mutable_spec() = Spec({10, 11});
    return Item(item);
  }
  // Storages of two shards with the bytes "xxxx..." and "yyyy...", 16 of each.
  std::vector<Action> Put(uint64_t ordinal, std::vector<uint64_t> storages) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Put& put = *item.mutable_node()->mutable_put();
    for (uint32_t device : {10, 11}) put.add_devices(device);
    for (uint64_t storage : storages) {
      wire::PutArray& array = *put.add_arrays();
      array.set_storage(storage);
      array.mutable_tensor()->set_element_type(11);
      array.mutable_tensor()->add_shard_dims(4);
      array.mutable_tensor()->set_shard_bytes(16);
      for (char content : {'x', 'y'}) array.add_shards(std::string(16, content));
    }
    return Item(item);
  }
  std::vector<Action> Launch(uint64_t ordinal, std::vector<wire::ArrayRef> arguments,
                             uint64_t result, std::vector<uint32_t> donated = {},
                             uint64_t executable = kExecutable) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Launch& body = *item.mutable_node()->mutable_launch();
    body.set_executable(executable);
    for (wire::ArrayRef& argument : arguments) *body.add_arguments() = argument;
    body.add_results(result);
    body.mutable_donated()->Add(donated.begin(), donated.end());
    return Item(item);
  }
  std::vector<Action> Fetch(uint64_t ordinal, uint64_t storage, uint64_t fetch) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Fetch& body = *item.mutable_node()->mutable_fetch();
    *body.mutable_source() = Ref(storage);
    *body.mutable_devices() = Spec({10, 11}).devices();
    body.set_fetch(fetch);
    return Item(item);
  }
  // Copies one shard of each source per device. `arrays`: sources and results.
  std::vector<Action> CopyMany(uint64_t ordinal, const std::vector<uint32_t>& from,
                               const std::vector<uint32_t>& to,
                               const std::vector<std::pair<uint64_t, uint64_t>>& arrays) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Copy& copy = *item.mutable_node()->mutable_copy();
    copy.mutable_source_devices()->Add(from.begin(), from.end());
    copy.mutable_devices()->Add(to.begin(), to.end());
    for (const auto& [source, result] : arrays) {
      wire::CopiedArray& array = *copy.add_arrays();
      *array.mutable_source() = Ref(source, static_cast<uint32_t>(from.size()));
      array.set_storage(result);
      array.mutable_spec()->set_shard_bytes(Spec(to).shard_bytes());
    }
    copy.set_token("a token");
    return Item(item);
  }
  std::vector<Action> Copy(uint64_t ordinal, const std::vector<uint32_t>& from,
                           const std::vector<uint32_t>& to, uint64_t result,
                           uint64_t source = 100) {
    return CopyMany(ordinal, from, to, {{source, result}});
  }
  std::vector<Action> Release(std::vector<uint64_t> ordinals) {
    wire::IslandItem item;
    item.mutable_release()->mutable_ordinals()->Add(ordinals.begin(), ordinals.end());
    return Item(item);
  }
  std::vector<Action> Free(uint64_t storage) {
    wire::IslandItem item;
    item.mutable_free()->add_storages(storage);
    return Item(item);
  }
  std::vector<Action> Staged(uint64_t upload, uint32_t shard, uint64_t bytes = 16) {
    return Keep(core_.Step(UploadShardStaged{kSession, UploadId(upload), shard, bytes}));
  }
  std::vector<Action> Ended(uint64_t ordinal, std::optional<wire::Failure> failure = {}) {
    return Keep(core_.Step(NodeEnded{Ordinal(ordinal), std::move(failure), {}}));
  }

  // Reports of this round.
  wire::ReportBatch Round() {
    for (Action& action : core_.Step(RoundEnded{})) {
      if (auto* send = std::get_if<SendReports>(&action)) return send->batch;
    }
    return {};
  }
  // Done reports of this round: ordinal -> failure.
  std::map<uint64_t, wire::Failure> Dones() {
    std::map<uint64_t, wire::Failure> dones;
    wire::ReportBatch batch = Round();
    for (const wire::Report& report : batch.reports()) {
      if (report.has_done()) {
        EXPECT_TRUE(dones.emplace(report.done().ordinal(), report.done().failure()).second);
      }
    }
    return dones;
  }
  // Makes an array that is present on both devices.
  void Have(uint64_t storage) {
    uint64_t ordinal = 1000 + storage;
    Upload(ordinal, storage, ordinal);
    Release({ordinal});
    Staged(ordinal, 0);
    Staged(ordinal, 1);
    Ended(ordinal);
    Dones();
    log_.clear();
  }

  static std::vector<uint64_t> Runs(const std::vector<Action>& actions) {
    std::vector<uint64_t> ordinals;
    for (const auto& run : All<worker::Run>(actions)) ordinals.push_back(run.ordinal.number());
    return ordinals;
  }
  static wire::Failure Broken(const std::string& text) {
    wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInternal, text);
    failure.set_program("step");
    return failure;
  }

  WorkerCore core_{{.name = "island0/worker0", .incarnation = Incarnation(77), .device_count = 2}};
  std::vector<Action> log_;
};

TEST_F(WorkerCoreTest, PreparesAChainWhileItsUploadIsWithheld_DF2) {
  Upload(1, 100, 1);
  for (uint64_t i = 0; i < 10; ++i) {
    std::vector<Action> actions = Launch(2 + i, {Ref(100 + i)}, 101 + i);
    ASSERT_EQ(All<PrepareLaunch>(actions).size(), 1u) << i;
    ASSERT_EQ(All<CreateStorage>(actions).size(), 1u) << i;
  }
  EXPECT_THAT(Runs(log_), IsEmpty());
  EXPECT_EQ(Round().reports_size(), 0) << "host-side work needs no report";
}

TEST_F(WorkerCoreTest, ResolvesArgumentsPerPosition) {
  Have(100);
  wire::ArrayRef mixed = Ref(100, 1, 0);
  *mixed.add_runs() = Ref(100, 1, 1).runs(0);
  PrepareLaunch prepare = All<PrepareLaunch>(Launch(5, {mixed, Ref(100)}, 200)).at(0);
  ASSERT_EQ(prepare.positions.size(), 2u);
  EXPECT_EQ(prepare.positions[1].device, 1);
  EXPECT_THAT(prepare.positions[1].arguments,
              ElementsAre(ShardKey{StorageId(100), 1}, ShardKey{StorageId(100), 1}));
}

TEST_F(WorkerCoreTest, RunsInTheOrderOfReleases_GS1) {
  Have(100);
  for (uint64_t i = 1; i <= 4; ++i) Launch(i, {Ref(100)}, 200 + i);
  EXPECT_THAT(Runs(log_), IsEmpty());
  Release({3, 1});
  Release({4, 2});
  EXPECT_THAT(Runs(log_), ElementsAre(3, 1, 4, 2));
}

TEST_F(WorkerCoreTest, TellsThatSequentialLaunchesAreOnTheirDevices) {
  Have(100);
  for (uint64_t i = 1; i <= 3; ++i) {
    wire::IslandItem item = NodeItem(i);
    wire::Launch& launch = *item.mutable_node()->mutable_launch();
    launch.set_executable(kExecutable);
    *launch.add_arguments() = Ref(100);
    launch.add_results(200 + i);
    item.mutable_node()->set_dispatch(i == 2 ? wire::DISPATCH_PARALLEL
                                             : wire::DISPATCH_AFTER_RELEASE);
    Item(item);
  }
  EXPECT_EQ(Round().reports_size(), 0);
  Release({1, 2, 3});
  const wire::ReportBatch batch = Round();
  ASSERT_EQ(batch.reports_size(), 1);
  EXPECT_THAT(batch.reports(0).released().ordinals(), ElementsAre(1, 3));
}

TEST_F(WorkerCoreTest, DoneComesOncePerNodeInAnyOrder) {
  Have(100);
  Launch(1, {Ref(100)}, 201);
  Launch(2, {Ref(100)}, 202);
  Release({1, 2});
  EXPECT_TRUE(Dones().empty());
  Ended(2);
  EXPECT_EQ(Dones().count(2), 1u);
  Ended(1);
  EXPECT_EQ(Dones().count(1), 1u);
  EXPECT_EQ(core_.counts().nodes, 0u);
}

// Or each gang would be told to all other workers, for each device.
TEST_F(WorkerCoreTest, ALaunchThatHasRunSkipsNoPlace) {
  Have(100);
  Launch(1, {Ref(100)}, 201);
  Launch(2, {Ref(100)}, 202);
  Release({1, 2});
  std::vector<Action> actions = Ended(1);
  EXPECT_THAT(All<SkipPosition>(actions), IsEmpty());
  EXPECT_THAT(All<Discard>(actions), IsEmpty());
  actions = Ended(2, Broken("the root cause"));
  EXPECT_THAT(All<SkipPosition>(actions), IsEmpty());
  EXPECT_EQ(core_.counts().nodes, 0u);
}

TEST_F(WorkerCoreTest, FailureRunsDownTheChainUnchanged_ER1) {
  Have(100);
  for (uint64_t i = 0; i < 3; ++i) Launch(1 + i, {Ref(100 + i)}, 101 + i);
  Release({1});
  std::vector<Action> actions = Ended(1, Broken("the root cause"));
  ASSERT_EQ(All<PoisonStorage>(actions).size(), 1u);
  EXPECT_EQ(All<PoisonStorage>(actions)[0].failure.gang(), 1u);
  actions = Release({2, 3});
  EXPECT_THAT(Runs(actions), IsEmpty());
  EXPECT_EQ(All<Discard>(actions).size(), 2u);
  auto dones = Dones();
  for (uint64_t ordinal : {1, 2, 3}) {
    EXPECT_EQ(dones[ordinal].message(), "the root cause");
    EXPECT_EQ(dones[ordinal].gang(), 1u);
  }
}

TEST_F(WorkerCoreTest, AFailedMemberIsToldBeforeItsGangEndsIfItIsTheCause_ER1) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Launch(2, {Ref(101)}, 102);
  Release({1, 2});
  core_.Step(MemberFailed{Ordinal(2), Broken("what follows from its input")});
  EXPECT_EQ(Round().reports_size(), 0) << "the input may still fail";
  core_.Step(MemberFailed{Ordinal(1), Broken("the root cause")});
  wire::ReportBatch batch = Round();
  ASSERT_EQ(batch.reports_size(), 1);
  EXPECT_EQ(batch.reports(0).failing().ordinal(), 1u);
  EXPECT_EQ(batch.reports(0).failing().failure().message(), "the root cause");
  EXPECT_EQ(batch.reports(0).failing().failure().gang(), 1u);
  Ended(1, Broken("the root cause"));
  batch = Round();
  ASSERT_EQ(batch.reports_size(), 2);
  EXPECT_EQ(batch.reports(0).done().failure().message(), "the root cause");
  EXPECT_EQ(batch.reports(1).failing().ordinal(), 2u);
  EXPECT_EQ(batch.reports(1).failing().failure().message(), "the root cause");
  core_.Step(MemberFailed{Ordinal(1), Broken("too late")});
  EXPECT_EQ(Round().reports_size(), 0);
}

TEST_F(WorkerCoreTest, AMemberThatFailsBesideItsInputIsToldOnceThatIsThere) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Launch(2, {Ref(101)}, 102);
  Release({1, 2});
  core_.Step(MemberFailed{Ordinal(2), Broken("its own failure")});
  Ended(1);
  const wire::ReportBatch batch = Round();
  ASSERT_EQ(batch.reports_size(), 2);
  EXPECT_EQ(batch.reports(1).failing().failure().message(), "its own failure");
  Ended(2, Broken("its own failure"));
  EXPECT_EQ(Dones().at(2).message(), "its own failure");
}

TEST_F(WorkerCoreTest, LaterGangsErrorWaitsForItsCause_ER1) {
  Have(100);
  for (uint64_t i = 0; i < 3; ++i) Launch(1 + i, {Ref(100 + i)}, 101 + i);
  Release({1, 2, 3});
  Ended(3, Broken("an echo of an echo"));
  Ended(2, Broken("an echo"));
  EXPECT_TRUE(Dones().empty());
  Ended(1, Broken("the root cause"));
  auto dones = Dones();
  ASSERT_EQ(dones.size(), 3u);
  for (auto& [ordinal, failure] : dones) EXPECT_EQ(failure.message(), "the root cause") << ordinal;
}

TEST_F(WorkerCoreTest, OwnErrorStaysWhenTheInputsAreGood_ER2) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Launch(2, {Ref(100)}, 102);
  Release({1, 2});
  Ended(1, Broken("mine"));
  Ended(2);
  auto dones = Dones();
  EXPECT_EQ(dones[1].message(), "mine");
  EXPECT_EQ(dones[2].code(), 0);
}

TEST_F(WorkerCoreTest, UploadFillsWhenReleasedAndStagedInEitherOrder) {
  Staged(7, 1);
  Upload(1, 100, 7);
  EXPECT_TRUE(All<FillUpload>(Staged(7, 0)).empty());
  EXPECT_EQ(All<FillUpload>(Release({1})).size(), 1u);
  Upload(2, 101, 8);
  Release({2});
  EXPECT_TRUE(All<FillUpload>(Staged(8, 0)).empty());
  EXPECT_EQ(All<FillUpload>(Staged(8, 1)).size(), 1u);
  EXPECT_TRUE(Dones().empty());
  Ended(1);
  Ended(2);
  EXPECT_EQ(Dones().size(), 2u);
  EXPECT_EQ(core_.counts().uploads, 0u);
}

// Without a shard to fill, no device would ever end the node.
TEST_F(WorkerCoreTest, AnUploadToFreedShardsFails) {
  for (const uint64_t ordinal : {1, 2}) {
    Upload(ordinal, 100 + ordinal, ordinal);
    Staged(ordinal, 0);
  }
  Free(101);
  wire::IslandItem shards;
  shards.mutable_free()->add_shards()->set_storage(102);
  shards.mutable_free()->mutable_shards(0)->set_count(2);
  Item(shards);
  EXPECT_TRUE(All<FillUpload>(Release({1, 2})).empty());
  for (const uint64_t ordinal : {1, 2}) {
    const std::vector<Action> actions = Staged(ordinal, 1);
    EXPECT_TRUE(All<FillUpload>(actions).empty());
    EXPECT_EQ(All<DropUpload>(actions).size(), 1u);
    EXPECT_THAT(Dones()[ordinal].message(), HasSubstr("was freed before it was filled"));
  }
  EXPECT_EQ(core_.counts().uploads, 0u);
}

TEST_F(WorkerCoreTest, APutNeedsNothingButItsRelease_GS4) {
  const std::vector<Action> actions = Put(1, {100, 101});
  EXPECT_EQ(All<CreateStorage>(actions).size(), 2u);
  const PreparePut prepare = All<PreparePut>(actions).at(0);
  ASSERT_EQ(prepare.parts.size(), 4u);
  EXPECT_EQ(prepare.parts[3].to, (ShardKey{.storage = StorageId(101), .shard = 1, .held = {}}));
  EXPECT_EQ(prepare.parts[3].device, 1);
  EXPECT_EQ(prepare.parts[3].bytes, std::string(16, 'y'));
  Launch(2, {Ref(101)}, 200);
  EXPECT_THAT(Runs(Release({1, 2})), ElementsAre(1, 2));
  Ended(1);
  Ended(2);
  EXPECT_EQ(Dones().size(), 2u);
  EXPECT_EQ(core_.counts().nodes, 0u);
}

TEST_F(WorkerCoreTest, AFailedPutSpoilsItsReaders_ER1) {
  Put(1, {100});
  Launch(2, {Ref(100)}, 200);
  Release({1, 2});
  Ended(2, Broken("an echo"));
  EXPECT_TRUE(Dones().empty());
  Ended(1, Broken("no room"));
  auto dones = Dones();
  EXPECT_EQ(dones[1].message(), "no room");
  EXPECT_EQ(dones[2].message(), "no room");
}

TEST_F(WorkerCoreTest, APutThatIsCancelledBeforeItsReleaseIsDiscarded) {
  Put(1, {100});
  wire::IslandItem cancel;
  cancel.mutable_cancel()->add_ordinals(1);
  EXPECT_EQ(All<Discard>(Item(cancel)).size(), 1u);
  EXPECT_TRUE(Dones().empty());
  EXPECT_EQ(core_.counts().nodes, 0u);
}

TEST_F(WorkerCoreTest, APutWithoutTheBytesOfAllItsShardsFails) {
  wire::IslandItem item = NodeItem(1);
  for (uint32_t device : {10, 11}) item.mutable_node()->mutable_put()->add_devices(device);
  item.mutable_node()->mutable_put()->add_arrays()->set_storage(100);
  Item(item);
  Launch(2, {Ref(100)}, 200);
  Release({1, 2});
  auto dones = Dones();
  EXPECT_THAT(dones[1].message(), HasSubstr("the bytes of 0 shards for 2 devices"));
  EXPECT_EQ(dones[2].message(), dones[1].message());
}

TEST_F(WorkerCoreTest, UploadOfTheWrongSizeFails) {
  Upload(1, 100, 7);
  Release({1});
  Staged(7, 0, 15);
  auto dones = Dones();
  ASSERT_EQ(dones.count(1), 1u);
  EXPECT_EQ(dones[1].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(dones[1].message(), HasSubstr("15 bytes"));
}

TEST_F(WorkerCoreTest, BytesOfTheWrongSizeAreDroppedBeforeTheRelease_TM2) {
  Upload(1, 100, 7);
  EXPECT_EQ(All<DropUpload>(Staged(7, 0, 15)).size(), 1u);
  Release({1});
  EXPECT_EQ(Dones()[1].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(core_.counts().uploads, 0u);
}

TEST_F(WorkerCoreTest, ARefusedUploadFailsItsNodeWheneverThatComes_TM2) {
  const wire::Failure full = wire::MakeFailure(absl::StatusCode::kResourceExhausted, "full");
  Upload(1, 100, 7);
  Release({1});
  Staged(7, 0);
  core_.Step(UploadRefused{kSession, UploadId(7), full});
  core_.Step(UploadRefused{kSession, UploadId(8), full});
  Upload(2, 101, 8);
  Release({2});
  auto dones = Dones();
  for (uint64_t ordinal : {1, 2}) {
    EXPECT_EQ(dones[ordinal].code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(dones[ordinal].message(), "full");
  }
  EXPECT_EQ(core_.counts().uploads, 0u);
}

TEST_F(WorkerCoreTest, AnUploadThatNoNodeWillUseIsForgotten_TM2) {
  Staged(7, 0);
  EXPECT_EQ(core_.counts().uploads, 1u);
  for (UploadId upload : {UploadId(7), UploadId(8)})
    core_.Step(UploadRefused{kSession, upload, {}, /*unwanted=*/true});
  EXPECT_EQ(core_.counts().uploads, 0u);
}

TEST_F(WorkerCoreTest, BytesThatCameBeforeANodeThatFailsAreDropped_TM2) {
  Upload(1, 100, 7);
  Staged(8, 0);
  EXPECT_EQ(All<DropUpload>(Upload(2, 100, 8)).size(), 1u) << "the storage is in use";
  EXPECT_EQ(core_.counts().uploads, 1u) << "the first";
}

TEST_F(WorkerCoreTest, SessionEndAbandonsPartialUploads) {
  Upload(1, 100, 7);
  Upload(2, 101, 8);
  Staged(9, 0);
  Release({1});
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession.number());
  std::vector<Action> actions = Item(end);
  EXPECT_EQ(All<EndStreams>(actions).size(), 1u);
  EXPECT_EQ(Dones()[1].code(), static_cast<int>(absl::StatusCode::kCancelled));
  Release({2});
  EXPECT_EQ(Dones()[2].code(), static_cast<int>(absl::StatusCode::kCancelled));
  Free(100);
  Free(101);
  EXPECT_EQ(core_.counts(), (Counts{.executables = 1}));
}

// ER-1: the first cause.
TEST_F(WorkerCoreTest, AnUploadThatFailedBeforeItsSessionEndedKeepsItsFailure) {
  Upload(1, 100, 7);
  Staged(7, 0, 15);
  wire::IslandItem end;
  end.mutable_end_session()->set_session(kSession.number());
  EXPECT_TRUE(All<DropUpload>(Item(end)).empty()) << "it was dropped when it failed";
  Release({1});
  EXPECT_EQ(Dones()[1].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(core_.counts().uploads, 0u);
}

TEST_F(WorkerCoreTest, CancelledNodesPoisonAndReportNothing) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Fetch(2, 101, 60);
  wire::IslandItem cancel;
  cancel.mutable_cancel()->add_ordinals(1);
  cancel.mutable_cancel()->add_ordinals(2);
  *cancel.mutable_cancel()->mutable_failure() = Broken("the slice is gone");
  std::vector<Action> actions = Item(cancel);
  EXPECT_EQ(All<Discard>(actions).size(), 2u);
  EXPECT_EQ(All<PoisonStorage>(actions).at(0).failure.message(), "the slice is gone");
  EXPECT_THAT(All<FailFetch>(actions).at(0).shards, ElementsAre(0, 1));
  EXPECT_TRUE(Dones().empty());
  EXPECT_EQ(core_.counts().nodes, 0u);
}

TEST_F(WorkerCoreTest, CancelOfAReleasedUploadEndsItsWait_TM1) {
  auto cancel = [](uint64_t ordinal) {
    wire::IslandItem item;
    item.mutable_cancel()->add_ordinals(ordinal);
    *item.mutable_cancel()->mutable_failure() = Broken("the bytes never arrived");
    return item;
  };
  Upload(1, 100, 7);
  Release({1});
  Staged(7, 0);
  std::vector<Action> actions = Item(cancel(1));
  EXPECT_EQ(All<PoisonStorage>(actions).size(), 1u);
  EXPECT_EQ(All<DropUpload>(actions).size(), 1u);
  auto dones = Dones();
  EXPECT_EQ(dones[1].message(), "the bytes never arrived");
  EXPECT_EQ(dones[1].worker(), "island0/worker0");
  // An upload with all its bytes ends by itself. A gang does, too, but its members may wait for others.
  Upload(2, 101, 8);
  Release({2});
  Staged(8, 0);
  Staged(8, 1);
  Launch(3, {Ref(101)}, 102);
  Release({3});
  EXPECT_TRUE(Item(cancel(2)).empty());
  const std::vector<CancelLaunch> cancels = All<CancelLaunch>(Item(cancel(3)));
  ASSERT_EQ(cancels.size(), 1u) << "the service knows whether its members wait for others";
  EXPECT_EQ(cancels[0].ordinal, Ordinal(3));
  Ended(2);
  Ended(3);
  dones = Dones();
  EXPECT_EQ(dones.at(2).code(), 0);
  EXPECT_EQ(dones.at(3).code(), 0);
}

TEST_F(WorkerCoreTest, UploadsThatGotBytesAreReportedWhileTheyWait_TM1) {
  Upload(1, 100, 7);
  Upload(2, 101, 8);
  Release({1});
  Keep(core_.Step(UploadsMoved{kSession, {UploadId(7), UploadId(8), UploadId(99)}}));
  wire::ReportBatch batch = Round();
  ASSERT_EQ(batch.reports_size(), 1);
  EXPECT_THAT(batch.reports(0).staging().ordinals(), ElementsAre(1));
}

TEST_F(WorkerCoreTest, FetchOfAFailedArraySendsTheFailure_ER1) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Fetch(2, 101, 60);
  Release({1});
  Ended(1, Broken("the root cause"));
  std::vector<Action> actions = Release({2});
  FailFetch fail = All<FailFetch>(actions).at(0);
  EXPECT_EQ(fail.fetch, FetchId(60));
  EXPECT_THAT(fail.shards, ElementsAre(0, 1));
  EXPECT_EQ(fail.failure.message(), "the root cause");
  EXPECT_EQ(Dones().size(), 2u);
}

TEST_F(WorkerCoreTest, UnknownStorageIsDataLoss) {
  Launch(1, {Ref(555)}, 101);
  Launch(2, {Ref(101)}, 102);
  Release({1, 2});
  auto dones = Dones();
  for (uint64_t ordinal : {1, 2}) {
    EXPECT_EQ(dones[ordinal].code(), static_cast<int>(absl::StatusCode::kDataLoss));
    EXPECT_THAT(dones[ordinal].message(), HasSubstr("storage 555"));
    EXPECT_EQ(dones[ordinal].worker(), "island0/worker0");
    EXPECT_EQ(dones[ordinal].incarnation(), 77u);
  }
  Free(101);
  Free(102);
  EXPECT_EQ(core_.counts(), (Counts{.executables = 1}));
}

TEST_F(WorkerCoreTest, UnknownExecutableAndUnknownOrdinalAreDataLoss) {
  Launch(1, {}, 101, {}, 12345);
  Release({1, 99});
  auto dones = Dones();
  EXPECT_EQ(dones[1].code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(dones[99].code(), static_cast<int>(absl::StatusCode::kDataLoss));
}

TEST_F(WorkerCoreTest, TooFewShardsAndWrongDevicesAreRefused) {
  Have(100);
  wire::ArrayRef swapped = Ref(100, 1, 1);
  *swapped.add_runs() = Ref(100, 1, 0).runs(0);
  Launch(1, {Ref(100, 1)}, 101);
  Launch(2, {swapped}, 102);
  Release({1, 2});
  auto dones = Dones();
  EXPECT_EQ(dones[1].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(dones[1].message(), HasSubstr("1 shards"));
  EXPECT_EQ(dones[2].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(dones[2].message(), HasSubstr("device 11"));
  EXPECT_THAT(dones[2].message(), HasSubstr("device 10"));
}

TEST_F(WorkerCoreTest, DonatedStorageIsNotUsedAgain) {
  Have(100);
  Launch(1, {Ref(100)}, 101, {0});
  Launch(2, {Ref(100)}, 102);
  EXPECT_THAT(Runs(Release({1, 2})), ElementsAre(1));
  auto dones = Dones();
  EXPECT_THAT(dones[2].message(), HasSubstr("donated to gang 1"));
}

TEST_F(WorkerCoreTest, AShardIsDonatedAloneOB1) {
  LoadProgram(kExecutable + 1, {10}, 1);
  LoadProgram(kExecutable + 2, {11}, 1);
  Have(100);
  Launch(1, {Ref(100, 1)}, 101, {0}, kExecutable + 1);
  Launch(2, {Ref(100, 1, 1)}, 102, {}, kExecutable + 2);
  Launch(3, {Ref(100, 1)}, 103, {}, kExecutable + 1);
  EXPECT_THAT(Runs(Release({1, 2, 3})), ElementsAre(1, 2));
  EXPECT_THAT(Dones()[3].message(), HasSubstr("donated to gang 1"));
}

TEST_F(WorkerCoreTest, AShardIsFreedAloneOB1) {
  LoadProgram(kExecutable + 1, {10}, 1);
  LoadProgram(kExecutable + 2, {11}, 1);
  Have(100);
  wire::IslandItem item;
  *item.mutable_free()->add_shards() = Ref(100, 5, 1).runs(0);
  for (size_t dropped : {1, 0}) {  // the second time there is nothing to drop
    size_t drops = 0;
    for (const Action& action : Item(item)) {
      const auto* drop = std::get_if<DropShards>(&action);
      if (drop == nullptr) continue;
      EXPECT_THAT(drop->shards, ElementsAre(1));
      ++drops;
    }
    EXPECT_EQ(drops, dropped);
  }
  Launch(1, {Ref(100, 1)}, 101, {}, kExecutable + 1);
  Launch(2, {Ref(100, 1, 1)}, 102, {}, kExecutable + 2);
  EXPECT_THAT(Runs(Release({1, 2})), ElementsAre(1));
  EXPECT_NE(Dones()[2].code(), 0);
  Ended(1);
  for (uint64_t storage : {100, 101, 102}) Free(storage);
  EXPECT_EQ(core_.counts().storages, 0u);
}

TEST_F(WorkerCoreTest, LoadFailureIsReportedAndFailsItsGangs) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  core_.Step(ExecutableLoaded{ExecutableId(kExecutable),
                              wire::MakeFailure(absl::StatusCode::kInternal, "bad code")});
  EXPECT_THAT(Runs(Release({1})), IsEmpty());
  wire::ReportBatch batch = Round();
  EXPECT_EQ(batch.reports(0).loaded().executable(), kExecutable);
  EXPECT_EQ(batch.reports(0).loaded().failure().message(), "bad code");
  EXPECT_EQ(batch.reports(1).done().failure().message(), "bad code");
  EXPECT_EQ(batch.reports(1).done().failure().program(), "step");
  EXPECT_EQ(batch.reports(1).done().failure().source(), "train.py:42");
}

TEST_F(WorkerCoreTest, ItsPartOfAProgramForOnePositionIsLoadedOnItsOwnDevices) {
  wire::IslandItem item;
  wire::Load& load = *item.mutable_load();
  load.set_executable(91);
  for (uint32_t device : {24, 11, 25, 10}) load.add_devices(device);
  load.mutable_positions()->set_partitions(4);
  load.add_results();
  const LoadExecutable action = All<LoadExecutable>(Item(item)).at(0);
  EXPECT_THAT(action.devices, ElementsAre(1, 0)) << "in the order of the positions";
  EXPECT_EQ(action.positions->partitions(), 4u);
  core_.Step(ExecutableLoaded{ExecutableId(91), std::nullopt});
  wire::IslandItem node = NodeItem(1);
  node.mutable_node()->mutable_launch()->set_executable(91);
  node.mutable_node()->mutable_launch()->add_results(200);
  const PrepareLaunch launch = All<PrepareLaunch>(Item(node)).at(0);
  ASSERT_EQ(launch.positions.size(), 2u);
  EXPECT_EQ(launch.positions[0].position, 1u);
  EXPECT_EQ(launch.positions[0].device, 1);
  EXPECT_EQ(launch.positions[1].position, 3u);
}

TEST_F(WorkerCoreTest, ProgramAcrossWorkersIsUnimplemented) {
  LoadProgram(91, {10, 12}, 1);
  wire::ReportBatch batch = Round();
  EXPECT_EQ(batch.reports(0).loaded().failure().code(),
            static_cast<int>(absl::StatusCode::kUnimplemented));
}

TEST_F(WorkerCoreTest, ACopyKnowsWhatMovesWhatLeavesAndWhatComes) {
  Have(100);
  PrepareCopy local = All<PrepareCopy>(Copy(1, {10, 11}, {11, 10}, 101)).at(0);
  ASSERT_EQ(local.moves.size(), 2u);
  EXPECT_EQ(local.moves[0].from.at(0), (ShardKey{StorageId(100), 0}));
  EXPECT_EQ(local.moves[0].to.at(0), (ShardKey{StorageId(101), 0}));
  EXPECT_EQ(local.moves[0].to_device, 1);
  EXPECT_TRUE(local.sends.empty() && local.receives.empty());
  PrepareCopy mixed = All<PrepareCopy>(Copy(2, {10, 11, 24, 25}, {11, 25, 10, 24}, 102)).at(0);
  ASSERT_EQ(mixed.moves.size(), 1u);
  ASSERT_EQ(mixed.sends.size(), 1u);
  EXPECT_EQ(mixed.sends[0].from.at(0), (ShardKey{StorageId(100), 1}));
  EXPECT_EQ(mixed.sends[0].device, 1);
  EXPECT_EQ(mixed.sends[0].to_device, DeviceId(25));
  ASSERT_EQ(mixed.receives.size(), 1u);
  EXPECT_EQ(mixed.receives[0].to.at(0), (ShardKey{StorageId(102), 2}));
  EXPECT_EQ(mixed.receives[0].device, 0);
  EXPECT_EQ(mixed.receives[0].from_device, DeviceId(24));
  EXPECT_EQ(mixed.token, "a token");
  EXPECT_TRUE(All<PrepareCopy>(Copy(3, {24, 25}, {25, 24}, 103)).empty()) << "no part is local";
  EXPECT_THAT(Runs(Release({1, 2, 3})), ElementsAre(1, 2));
  EXPECT_THAT(Dones().size(), 1u);
}

TEST_F(WorkerCoreTest, ACopyOfSeveralArraysIsOneTaskByPosition) {
  Have(100);
  Have(101);
  const PrepareCopy mixed = All<PrepareCopy>(CopyMany(3, {10, 11, 24}, {11, 25, 10},
                                                      {{100, 110}, {101, 111}, {100, 112}}))
                                .at(0);
  auto keys = [](std::vector<uint64_t> storages, uint32_t shard) {
    std::vector<ShardKey> all;
    for (uint64_t storage : storages) all.push_back({StorageId(storage), shard});
    return all;
  };
  ASSERT_EQ(mixed.moves.size(), 1u);
  EXPECT_EQ(mixed.moves[0].from, keys({100, 101, 100}, 0));
  EXPECT_EQ(mixed.moves[0].to, keys({110, 111, 112}, 0));
  ASSERT_EQ(mixed.sends.size(), 1u);
  EXPECT_EQ(mixed.sends[0].from, keys({100, 101, 100}, 1));
  EXPECT_EQ(mixed.sends[0].position, 1u);
  ASSERT_EQ(mixed.receives.size(), 1u);
  EXPECT_EQ(mixed.receives[0].to, keys({110, 111, 112}, 2));
  EXPECT_EQ(mixed.receives[0].position, 2u);
}

TEST_F(WorkerCoreTest, ACopyOfSeveralArraysFailsAsOne_ER1) {
  Have(100);
  EXPECT_TRUE(All<PrepareCopy>(CopyMany(2, {10, 11}, {11, 10}, {{100, 110}, {999, 111}})).empty())
      << "no storage 999";
  EXPECT_TRUE(All<PrepareCopy>(CopyMany(3, {10, 11}, {11, 10}, {{100, 120}, {100, 120}})).empty())
      << "one result twice";
  EXPECT_TRUE(All<PrepareCopy>(CopyMany(4, {10, 11}, {11, 10}, {})).empty()) << "of no array";
  Copy(5, {11, 10}, {10, 11}, 130, 110);
  Copy(6, {11, 10}, {10, 11}, 131, 111);
  EXPECT_TRUE(Runs(Release({2, 3, 4, 5, 6})).empty());
  std::map<uint64_t, wire::Failure> dones = Dones();
  ASSERT_EQ(dones.size(), 5u);
  EXPECT_EQ(dones[2].code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(dones[3].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(dones[4].code(), 0);
  for (uint64_t reader : {5, 6})
    EXPECT_EQ(dones[reader].SerializeAsString(), dones[2].SerializeAsString());
}

// Devices 12 and 13 are another worker's.
TEST_F(WorkerCoreTest, AGangOfAnEarlierEpochOfItsIslandIsRefused) {
  auto load = [this](uint64_t epoch) {
    wire::IslandItem item;
    wire::Load& load = *item.mutable_load();
    load.set_executable(91);
    load.set_name("step");
    load.mutable_positions()->set_partitions(4);
    load.set_has_collectives(true);
    load.set_island_epoch(epoch);
    for (uint32_t device : {10, 11, 12, 13}) load.add_devices(device);
    load.add_results()->set_shard_bytes(16);
    return Item(item);
  };
  auto member = [this](uint64_t epoch) {
    wire::IslandItem item;
    wire::Worker& other = *item.mutable_peers()->add_workers();
    other.set_island_epoch(epoch);
    other.set_incarnation(70 + epoch);
    for (uint32_t device : {12, 13}) other.add_devices(device);
    return All<UpdatePeer>(Item(item)).size();
  };
  auto launch = [this](uint64_t ordinal, uint64_t epoch, uint64_t executable) {
    wire::IslandItem item = NodeItem(ordinal);
    item.mutable_node()->mutable_launch()->set_executable(executable);
    item.mutable_node()->mutable_launch()->add_results(ordinal);
    item.mutable_node()->mutable_launch()->set_island_epoch(epoch);
    return All<PrepareLaunch>(Item(item)).size();
  };
  load(4);
  EXPECT_EQ(launch(1, 4, 91), 1u);
  EXPECT_EQ(member(6), 1u);
  EXPECT_EQ(launch(2, 5, 91), 0u);
  Release({2});
  const auto dones = Dones();
  ASSERT_TRUE(dones.contains(2));
  EXPECT_EQ(dones.at(2).code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(dones.at(2).message(), HasSubstr("epoch 5 of its island"));
  EXPECT_EQ(launch(3, 6, 91), 1u);
  EXPECT_EQ(launch(4, 5, kExecutable), 1u) << "its members need none of other workers";
  EXPECT_EQ(member(5), 0u) << "an older word on a member";
  const auto loads = All<LoadExecutable>(load(5));
  ASSERT_EQ(loads.size(), 1u);
  ASSERT_EQ(loads[0].members.size(), 1u);
  EXPECT_EQ(loads[0].members[0]->incarnation(), 76u) << "the latest word on it that counts";
  EXPECT_EQ(launch(5, 5, 91), 0u) << "nor does a load begin an older epoch";
}

TEST_F(WorkerCoreTest, SendersGoToTheCopyBeforeItRuns) {
  const auto know = [this](uint64_t incarnation) {
    wire::IslandItem item;
    wire::Worker& other = *item.mutable_peers()->add_workers();
    other.set_incarnation(incarnation);
    for (uint32_t device : {24, 25}) other.add_devices(device);
    Item(item);
  };
  const auto named = [this](uint64_t ordinal) {
    Copy(ordinal, {24, 26}, {10, 11}, 100 + ordinal);
    std::vector<uint64_t> incarnations;
    const auto actions = Release({ordinal});
    EXPECT_THAT(Runs(actions), ElementsAre(ordinal));
    const NamePeers senders = All<NamePeers>(actions).at(0);
    for (const WorkerRef& worker : senders.workers)
      incarnations.push_back(worker == nullptr ? 0 : worker->incarnation());
    return incarnations;
  };
  EXPECT_THAT(named(1), ElementsAre(0, 0));
  know(5);
  EXPECT_THAT(named(2), ElementsAre(5, 0)) << "the worker of device 26 is not known";
  know(6);
  EXPECT_THAT(named(3), ElementsAre(6, 0));
  know(0);
  EXPECT_THAT(named(4), ElementsAre(0, 0)) << "it is down";
}

TEST_F(WorkerCoreTest, CancelOfAReleasedCopyEndsWhatItWaitsForElsewhere_ER2) {
  Have(100);
  Copy(1, {10, 11}, {24, 25}, 101);
  Copy(2, {10, 11}, {11, 10}, 102);
  Release({1, 2});
  wire::IslandItem cancel;
  cancel.mutable_cancel()->add_ordinals(1);
  cancel.mutable_cancel()->add_ordinals(2);
  *cancel.mutable_cancel()->mutable_failure() = Broken("the other half failed");
  std::vector<CancelTransfers> cancels = All<CancelTransfers>(Item(cancel));
  ASSERT_EQ(cancels.size(), 1u) << "a local copy ends by itself";
  EXPECT_EQ(cancels[0].ordinal, Ordinal(1));
  EXPECT_EQ(cancels[0].failure.message(), "the other half failed");
  EXPECT_TRUE(Dones().empty()) << "the service says when it has ended";
  Ended(1, cancels[0].failure);
  EXPECT_EQ(Dones().at(1).message(), "the other half failed");
}

// The sender's verdict is the root cause, not the error that the device reported for the buffer.
TEST_F(WorkerCoreTest, AFailedSourceIsTheVerdictOfItsTransfer_ER1) {
  Have(100);
  Launch(1, {Ref(100)}, 101);
  Copy(2, {10, 11}, {24, 25}, 102, 101);
  Release({1, 2});
  Ended(2, Broken("a buffer with an error"));
  EXPECT_TRUE(Dones().empty());
  Ended(1, Broken("the root cause"));
  EXPECT_EQ(Dones().at(2).message(), "the root cause");
}

TEST_F(WorkerCoreTest, NodesWithoutALocalPartAreDoneAtTheirRelease) {
  wire::IslandItem item = NodeItem(1);
  wire::Upload& upload = *item.mutable_node()->mutable_upload();
  upload.set_storage(100);
  *upload.mutable_spec() = Spec({20, 21});
  Item(item);
  EXPECT_TRUE(Dones().empty());
  Release({1});
  EXPECT_EQ(Dones()[1].code(), 0);
  EXPECT_EQ(core_.counts().storages, 0u);
}

// Stands for what the service holds of a record: the core never looks inside.
template <typename T>
std::weak_ptr<int> Hold(const Held<T>& held) {
  auto owner = std::make_shared<int>(0);
  held.Set(std::shared_ptr<T>(owner, nullptr));
  return owner;
}

TEST_F(WorkerCoreTest, WhatTheServiceHoldsGoesWithItsRecord) {
  std::weak_ptr<int> shards, task, executable;
  {
    const std::vector<Action> uploaded = Upload(1, 100, 7), launched = Launch(2, {Ref(100)}, 101);
    shards = Hold(All<CreateStorage>(uploaded).at(0).held);
    task = Hold(All<PrepareLaunch>(launched).at(0).held);
    executable = Hold(All<LoadExecutable>(log_).at(0).held);
  }
  log_.clear();
  for (uint32_t shard : {0, 1}) Staged(7, shard);
  Release({1, 2});
  EXPECT_GT(All<worker::Run>(log_).at(0).held.get().use_count(), 0) << "it gets what it has set";
  Ended(1);
  log_.clear();
  EXPECT_FALSE(task.expired()) << "the launch runs";
  Ended(2);
  log_.clear();
  EXPECT_TRUE(task.expired());
  EXPECT_FALSE(shards.expired());
  Free(100);
  EXPECT_FALSE(shards.expired()) << "the service empties the slots";
  log_.clear();
  EXPECT_TRUE(shards.expired());
  EXPECT_FALSE(executable.expired());
  core_.Clear();
  EXPECT_TRUE(executable.expired());
}

TEST_F(WorkerCoreTest, AStopEndsWhatWaitsForShardsOrOtherProcesses) {
  Upload(1, 100, 7);
  Launch(2, {Ref(100)}, 101);
  Release({1});
  const wire::Failure why = wire::MakeFailure(absl::StatusCode::kUnavailable, "it stops");
  const std::vector<Action> actions = Keep(core_.Step(Stopping{why}));
  ASSERT_EQ(All<PoisonStorage>(actions).size(), 2u);
  EXPECT_EQ(All<PoisonStorage>(actions)[0].failure.message(), "it stops");
  ASSERT_EQ(All<CancelLaunch>(actions).size(), 1u);
  EXPECT_EQ(All<CancelLaunch>(actions)[0].ordinal, Ordinal(2));
}

// A program over this worker and others that was compiled for one is refused at its load.
TEST_F(WorkerCoreTest, ALaunchOfAProgramThatWasNotLoadedFails) {
  LoadProgram(kExecutable + 1, {10, 99}, 1);
  EXPECT_THAT(All<PrepareLaunch>(Launch(1, {}, 100, {}, kExecutable + 1)), IsEmpty());
  Release({1});
  EXPECT_THAT(Dones().at(1).message(), HasSubstr("was compiled for one"));
}

}  // namespace
}  // namespace gangway::worker
