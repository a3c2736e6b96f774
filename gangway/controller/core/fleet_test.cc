// Unit tests of fleet.h.
#include "gangway/controller/core/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FleetTest : public testing::Test {
 protected:
  std::string RefusalOf(const Devices& devices) {
    wire::FailureRef refused;
    fleet_.ListOf(devices, refused);
    return refused ? refused->message() : "";
  }
  std::string ClosedFor(const Devices& devices) {
    const wire::FailureRef failure = fleet_.CheckOpen(*fleet_.ListOf(devices));
    return failure ? failure->message() : "";
  }
  std::optional<size_t> Report(uint32_t island, uint32_t index, uint64_t incarnation, bool up) {
    wire::WorkerState state;
    state.mutable_worker()->set_island(island);
    state.mutable_worker()->set_index(index);
    state.mutable_worker()->set_incarnation(incarnation);
    state.set_up(up);
    return fleet_.OnWorkerState(state);
  }
  static wire::DrainRequest DrainOf(uint32_t island, uint32_t index, bool undo = false) {
    wire::DrainRequest request;
    request.set_island(island);
    request.set_index(index);
    request.set_undo(undo);
    return request;
  }

  Fleet fleet_{FourWorkers()};
};

TEST_F(FleetTest, DevicesThatAreNoListAreRefusedByName) {
  EXPECT_EQ(RefusalOf({}), "the operation names no device");
  EXPECT_EQ(RefusalOf({1, 1}), "the operation names device 1 twice");
  EXPECT_EQ(RefusalOf({1, 8}), "device 8 is not part of this cluster, which has devices 0 to 7");
  EXPECT_EQ(RefusalOf({7, 0}), "");
}

TEST_F(FleetTest, IslandsAreInTheOrderOfTheirFirstDevice) {
  EXPECT_THAT(fleet_.IslandsOf(Devices{5, 5, 0, 4}), ElementsAre(1, 0));
}

TEST_F(FleetTest, ADrainedWorkerTakesNothingUntilThatIsUndone) {
  fleet_.OnDrain(DrainOf(0, 1));
  EXPECT_THAT(ClosedFor({4, 0, 3}), HasSubstr("island0/worker1 is being drained"));
  EXPECT_THAT(ClosedFor({4, 0, 3}), HasSubstr("on device 3"));
  EXPECT_EQ(ClosedFor({4, 0}), "");
  fleet_.OnDrain(DrainOf(0, 1, /*undo=*/true));
  EXPECT_EQ(ClosedFor({4, 0, 3}), "");
  EXPECT_FALSE(fleet_.CheckDrain(DrainOf(1, 1)).has_value());
  EXPECT_THAT(fleet_.CheckDrain(DrainOf(1, 2))->message(), HasSubstr("island1/worker2"));
}

TEST_F(FleetTest, AProcessThatWasToldToEndTakesNothingAndItsSuccessorDoes) {
  wire::Leaving leaving;
  leaving.set_index(1);
  leaving.set_incarnation(5);
  EXPECT_FALSE(fleet_.OnLeaving(0, leaving)) << "it is not up";
  Report(0, 1, 5, true);
  EXPECT_TRUE(fleet_.OnLeaving(0, leaving));
  EXPECT_THAT(ClosedFor({2}), HasSubstr("was told to end"));
  Report(0, 1, 6, true);
  EXPECT_EQ(ClosedFor({2}), "");
}

TEST_F(FleetTest, NothingIsOpenOnceTheClusterShutsDown) {
  fleet_.DrainAll();
  EXPECT_THAT(ClosedFor({0}), HasSubstr("shutting down"));
}

TEST_F(FleetTest, OnlyAChangeIsTold) {
  EXPECT_TRUE(fleet_.AwaitsFirstStart());
  EXPECT_EQ(Report(1, 0, 5, true), 2u);
  EXPECT_EQ(Report(1, 0, 5, true), std::nullopt);
  EXPECT_EQ(Report(1, 0, 6, true), 2u);
  EXPECT_EQ(Report(1, 0, 6, false), 2u);
  EXPECT_EQ(Report(1, 9, 6, true), std::nullopt) << "it is not declared";
}

TEST_F(FleetTest, WhatAReplacedProcessReportsComesTooLate) {
  Report(0, 0, 5, true);
  Report(0, 0, 5, false);
  fleet_.NoteReplaced(0, Fleet::Time());
  EXPECT_EQ(Report(0, 0, 5, true), std::nullopt);
  EXPECT_FALSE(fleet_.workers()[0].up);
  EXPECT_EQ(Report(0, 0, 6, true), 0u);
  EXPECT_FALSE(fleet_.workers()[0].replaced.has_value());
}

}  // namespace
}  // namespace gangway::controller
