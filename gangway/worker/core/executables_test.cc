// Tests of executables.h: which loads reach the service, and what a launch finds.
#include "gangway/worker/core/executables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/worker/core/core_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ExecutableId kExecutable(90);

class ExecutablesTest : public ::testing::Test {
 protected:
  static wire::Load LoadOn(const std::vector<uint32_t>& devices) {
    wire::Load load;
    load.set_executable(kExecutable.number());
    load.set_name("step");
    load.set_serialized("code");
    *load.mutable_devices() = Devices(devices);
    load.add_results()->set_shard_bytes(16);
    return load;
  }
  bool Load(wire::Load load) { return executables_.Load(load, fleet_, actions_); }

  Fleet fleet_ = FleetOfTwo();
  Executables executables_{
      {.name = "island0/worker0", .incarnation = Incarnation(77), .device_count = 2}};
  std::vector<Action> actions_;
};

TEST_F(ExecutablesTest, AProgramOnLocalDevicesIsLoadedOnThem) {
  EXPECT_TRUE(Load(LoadOn({11, 10})));
  const auto loads = All<LoadExecutable>(actions_);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].executable, kExecutable);
  EXPECT_EQ(loads[0].serialized, "code");
  EXPECT_THAT(loads[0].devices, ElementsAre(1, 0));
  const Executable* const executable = executables_.Find(kExecutable);
  ASSERT_NE(executable, nullptr);
  EXPECT_TRUE(executable->held.has_record());
  EXPECT_EQ(executable->results.size(), 1u);
  EXPECT_EQ(executable->label->name, "step");
  EXPECT_FALSE(executable->failure);
  EXPECT_EQ(executables_.Find(ExecutableId(91)), nullptr);
}

TEST_F(ExecutablesTest, AProgramOverSeveralWorkersNeedsOneForEachPosition) {
  EXPECT_FALSE(Load(LoadOn({10, 24})));
  EXPECT_THAT(actions_, IsEmpty());
  const Executable* const executable = executables_.Find(kExecutable);
  ASSERT_NE(executable, nullptr);
  EXPECT_FALSE(executable->held.has_record());
  ASSERT_TRUE(executable->failure);
  EXPECT_THAT(executable->failure->message(), HasSubstr("compiled for one"));
  EXPECT_EQ(executable->failure->worker(), "island0/worker0");
  EXPECT_EQ(executable->failure->program(), "step");
  wire::Load load = LoadOn({10, 24});
  load.mutable_positions()->set_partitions(2);
  EXPECT_TRUE(Load(load));
  EXPECT_THAT(All<LoadExecutable>(actions_).at(0).devices, ElementsAre(0));
}

TEST_F(ExecutablesTest, AProgramWithoutALocalPartIsKnownAndNotLoaded) {
  EXPECT_FALSE(Load(LoadOn({24, 25})));
  EXPECT_THAT(actions_, IsEmpty());
  ASSERT_NE(executables_.Find(kExecutable), nullptr);
  EXPECT_FALSE(executables_.Find(kExecutable)->failure);
}

TEST_F(ExecutablesTest, OnlyCollectivesOfOurOwnHaveMembersAndAnEpoch) {
  wire::Worker other;
  other.add_devices(24);
  other.set_incarnation(7);
  fleet_.UpdatePeer(other);
  wire::Load load = LoadOn({10, 24});
  load.mutable_positions()->set_partitions(2);
  load.set_island_epoch(4);
  Load(load);
  EXPECT_FALSE(executables_.Find(kExecutable)->has_members);
  EXPECT_EQ(fleet_.epoch(), 0u);
  EXPECT_THAT(All<LoadExecutable>(Taken(actions_)).at(0).members, IsEmpty());
  load.set_has_collectives(true);
  Load(load);
  EXPECT_TRUE(executables_.Find(kExecutable)->has_members);
  EXPECT_EQ(fleet_.epoch(), 4u);
  const LoadExecutable loaded = All<LoadExecutable>(actions_).at(0);
  EXPECT_THAT(loaded.position_devices, ElementsAre(DeviceId(10), DeviceId(24)));
  ASSERT_EQ(loaded.members.size(), 1u);
  EXPECT_EQ(loaded.members[0]->incarnation(), 7u);
}

TEST_F(ExecutablesTest, AFailedLoadNamesWorkerAndProgramWhereTheyAreMissing) {
  Load(LoadOn({10}));
  wire::Failure failure = wire::MakeFailure(absl::StatusCode::kInternal, "bad code");
  failure.set_program("its own name");
  executables_.FailLoad(kExecutable, failure);
  EXPECT_EQ(failure.worker(), "island0/worker0");
  EXPECT_EQ(failure.incarnation(), 77u);
  EXPECT_EQ(failure.program(), "its own name");
  EXPECT_EQ(executables_.Find(kExecutable)->failure->message(), "bad code");
  wire::Failure unknown = wire::MakeFailure(absl::StatusCode::kInternal, "bad code");
  executables_.FailLoad(ExecutableId(91), unknown);
  EXPECT_EQ(unknown.worker(), "");
}

TEST_F(ExecutablesTest, AnUnloadIsForWhatIsKnown) {
  Load(LoadOn({10}));
  actions_.clear();
  executables_.Unload(ExecutableId(91), actions_);
  EXPECT_THAT(actions_, IsEmpty());
  executables_.Unload(kExecutable, actions_);
  EXPECT_EQ(All<UnloadExecutable>(actions_).size(), 1u);
  EXPECT_EQ(executables_.size(), 0u);
}

}  // namespace
}  // namespace gangway::worker
