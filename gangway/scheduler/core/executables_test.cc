// Which workers get which loads, which are introduced to one another, and when an executable goes.
#include "gangway/scheduler/core/executables.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

class ExecutablesTest : public ::testing::Test {
 protected:
  void Load(uint64_t id, const std::vector<uint32_t>& devices, bool has_members = false) {
    wire::Load load;
    load.set_executable(id);
    load.mutable_devices()->Add(devices.begin(), devices.end());
    if (has_members) {
      load.set_has_collectives(true);
      load.mutable_positions()->set_partitions(static_cast<uint32_t>(devices.size()));
    }
    executables_.Load(load);
  }
  void NoteFailure(uint32_t worker, uint64_t id, absl::StatusCode code) {
    wire::Loaded loaded;
    loaded.set_executable(id);
    *loaded.mutable_failure() = wire::MakeFailure(code, "it cannot be loaded");
    executables_.NoteFailure(worker, loaded, kStart);
  }
  void Unload(uint64_t id, const std::set<ExecutableId>& needed) {
    wire::Unload unload;
    unload.add_executables(id);
    executables_.NoteUnload(unload);
    executables_.Unload(needed);
  }
  // Of the items since the last call.
  size_t Loads(uint32_t worker) {
    taken_ = two_.Take();
    return ItemsFor(worker, taken_, [](const auto& item) { return item.has_load(); }).size();
  }
  size_t MembersNamedTo(uint32_t worker) const {
    size_t named = 0;
    for (const auto& item : ItemsFor(worker, taken_, [](const auto&) { return true; }))
      named += static_cast<size_t>(item.peers().workers_size());
    return named;
  }
  void Restart(uint32_t worker, uint64_t incarnation) {
    two_.fleet.Stop(worker);
    introductions_.NoteDown(worker);
    two_.fleet.Start(Registration(worker, incarnation), 0);
    two_.Take();
    executables_.LoadAllOn(worker);
  }

  TwoWorkerFleet two_;
  Introductions introductions_{two_.fleet, two_.outbox};
  Executables executables_{two_.fleet, two_.layouts, introductions_, two_.outbox};
  Actions taken_;
};

TEST_F(ExecutablesTest, AWorkerThatStartsGetsTheExecutablesOnItsDevices) {
  Load(1, {0, 2});
  Load(2, {1});
  Load(3, {9});
  EXPECT_EQ(Loads(0), 2u);
  Restart(1, 22);
  EXPECT_EQ(Loads(1), 1u);
  EXPECT_EQ(Loads(0), 0u);
  Load(1, {0});  // anew, and elsewhere
  EXPECT_EQ(Loads(1), 0u);
  Restart(1, 23);
  EXPECT_EQ(Loads(1), 0u);
}

TEST_F(ExecutablesTest, MembersOfAProgramKnowTheProcessesOfOneAnother) {
  Load(1, {0, 2}, /*has_members=*/true);
  EXPECT_EQ(Loads(0), 1u);
  EXPECT_EQ(MembersNamedTo(0), 2u);
  Load(2, {0, 2}, /*has_members=*/true);
  EXPECT_EQ(Loads(0), 1u);
  EXPECT_EQ(MembersNamedTo(0), 0u);
  Restart(1, 22);
  EXPECT_EQ(Loads(1), 2u);
  EXPECT_EQ(MembersNamedTo(0), 1u);
  EXPECT_EQ(MembersNamedTo(1), 2u);
}

TEST_F(ExecutablesTest, OthersAreNotToldOfOneAnother) {
  Load(1, {0, 2});
  Restart(1, 22);
  EXPECT_EQ(Loads(1), 1u);
  EXPECT_EQ(MembersNamedTo(0), 0u);
}

TEST_F(ExecutablesTest, AFailedLoadIsTriedAgainWhereItFailed) {
  Load(1, {0, 2});
  NoteFailure(1, 1, absl::StatusCode::kResourceExhausted);
  NoteFailure(1, 9, absl::StatusCode::kResourceExhausted);  // not known
  EXPECT_NE(executables_.FailureOf(ExecutableId(1)), nullptr);
  EXPECT_EQ(executables_.FailureOf(ExecutableId(9)), nullptr);
  EXPECT_EQ(Loads(1), 1u);
  executables_.LoadAgain(ExecutableId(1), kStart + std::chrono::milliseconds(999));
  EXPECT_EQ(Loads(1), 0u);
  executables_.LoadAgain(ExecutableId(1), kStart + std::chrono::milliseconds(1000));
  EXPECT_EQ(Loads(1), 1u);
  EXPECT_EQ(executables_.FailureOf(ExecutableId(1)), nullptr);
}

TEST_F(ExecutablesTest, WhatCanNeverBeLoadedIsNotTriedAgain) {
  Load(1, {0});
  two_.Take();
  NoteFailure(0, 1, absl::StatusCode::kInvalidArgument);
  executables_.LoadAgain(ExecutableId(1), kStart + std::chrono::hours(1));
  EXPECT_EQ(Loads(0), 0u);
  EXPECT_NE(executables_.FailureOf(ExecutableId(1)), nullptr);
}

TEST_F(ExecutablesTest, AnExecutableStaysWhileItIsNeeded) {
  Load(1, {0});
  Unload(1, {ExecutableId(1)});
  EXPECT_NE(executables_.Find(ExecutableId(1)), nullptr);
  EXPECT_TRUE(executables_.must_unload());
  executables_.Unload({});
  EXPECT_EQ(executables_.Find(ExecutableId(1)), nullptr);
  EXPECT_FALSE(executables_.must_unload());
  EXPECT_EQ(two_.Take().unloaded, std::vector{ExecutableId(1)});
}

}  // namespace
}  // namespace gangway::scheduler
