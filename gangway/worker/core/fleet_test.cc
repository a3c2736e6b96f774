// Tests of fleet.h: which devices are local, and what holds of the workers of others.
#include "gangway/worker/core/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/worker/core/core_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

wire::Worker Describe(const std::vector<uint32_t>& devices, uint64_t incarnation,
                      uint64_t epoch = 0) {
  wire::Worker worker;
  worker.mutable_devices()->Add(devices.begin(), devices.end());
  worker.set_incarnation(incarnation);
  worker.set_island_epoch(epoch);
  return worker;
}

bool Update(Fleet& fleet, wire::Worker worker) { return fleet.UpdatePeer(worker) != nullptr; }

// 0: none is named.
std::vector<uint64_t> Incarnations(const std::vector<WorkerRef>& workers) {
  std::vector<uint64_t> incarnations;
  for (const WorkerRef& worker : workers)
    incarnations.push_back(worker == nullptr ? 0 : worker->incarnation());
  return incarnations;
}

TEST(FleetTest, PositionsAreThoseOfLocalDevicesInTheirOrder) {
  const Fleet fleet = FleetOfTwo();
  const LocalPositions positions = fleet.PositionsOf(Devices({24, 11, 25, 10, 11}));
  EXPECT_EQ(positions.count, 5u);
  std::vector<std::pair<uint32_t, int>> local;
  for (const auto& [number, device] : positions.local) local.emplace_back(number, device);
  EXPECT_THAT(local, ElementsAre(std::pair(1u, 1), std::pair(3u, 0), std::pair(4u, 1)));
  EXPECT_THAT(fleet.PositionsOf(Devices({24, 25})).local, IsEmpty());
}

TEST(FleetTest, AnOpenReplacesTheDevicesAndIgnoresThoseBeyondItsNumber) {
  Fleet fleet = FleetOfTwo();
  wire::OpenDevices open;
  for (uint32_t device : {20, 21, 22}) open.add_devices(device);
  fleet.Open(open);
  EXPECT_THAT(fleet.PositionsOf(Devices({10, 11, 22})).local, IsEmpty());
  EXPECT_EQ(fleet.PositionsOf(Devices({20, 21})).local.size(), 2u);
  EXPECT_EQ(fleet.DeviceName(1), "device 21");
  EXPECT_EQ(fleet.DeviceName(-1), "another worker");
}

TEST(FleetTest, AnEpochOnlyGrows) {
  Fleet fleet = FleetOfTwo();
  EXPECT_TRUE(fleet.BeginEpoch(5));
  EXPECT_TRUE(fleet.BeginEpoch(5));
  EXPECT_FALSE(fleet.BeginEpoch(4));
  EXPECT_EQ(fleet.epoch(), 5u);
  wire::OpenDevices open;
  open.set_island_epoch(6);
  fleet.Open(open);
  EXPECT_EQ(fleet.epoch(), 6u);
}

TEST(FleetTest, ADescriptionOfAnEarlierEpochChangesNothing) {
  Fleet fleet = FleetOfTwo();
  EXPECT_TRUE(Update(fleet, Describe({24, 25}, 7, 3)));
  EXPECT_EQ(fleet.epoch(), 3u);
  EXPECT_FALSE(Update(fleet, Describe({24, 25}, 6, 2)));
  EXPECT_THAT(Incarnations(fleet.SendersOn({DeviceId(24)})), ElementsAre(7));
  EXPECT_TRUE(Update(fleet, Describe({24, 25}, 8, 3)));
  EXPECT_THAT(Incarnations(fleet.SendersOn({DeviceId(24)})), ElementsAre(8));
}

TEST(FleetTest, ASenderThatIsDownOrNotKnownIsNull) {
  Fleet fleet = FleetOfTwo();
  Update(fleet, Describe({24}, 7));
  Update(fleet, Describe({25}, 0));
  EXPECT_THAT(Incarnations(fleet.SendersOn({DeviceId(25), DeviceId(24), DeviceId(26)})),
              ElementsAre(0, 7, 0));
  EXPECT_EQ(fleet.SendersOn({DeviceId(25)}).at(0), nullptr);
}

TEST(FleetTest, AMemberIsNamedOnceForDevicesThatFollowOneAnother) {
  Fleet fleet = FleetOfTwo();
  Update(fleet, Describe({24, 25}, 7));
  Update(fleet, Describe({26, 27}, 9));
  EXPECT_THAT(Incarnations(fleet.MembersOn({DeviceId(10), DeviceId(24), DeviceId(25), DeviceId(26),
                                            DeviceId(27), DeviceId(99)})),
              ElementsAre(7, 9));
}

}  // namespace
}  // namespace gangway::worker
