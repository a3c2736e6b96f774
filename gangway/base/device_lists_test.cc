// Unit tests of device_lists.h.
#include "gangway/base/device_lists.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway {
namespace {

using ::testing::ElementsAre;
using Devices = std::vector<uint32_t>;
using Kind = DeviceLists::Fault::Kind;

// Two islands of two workers of two devices: device d is on island d / 4, worker d / 2 % 2.
DeviceTopology Topology() {
  DeviceTopology topology;
  for (uint32_t i = 0; i < 4; ++i) topology.AddWorker(i / 2, i % 2, Devices{2 * i, 2 * i + 1});
  return topology;
}

class DeviceListsTest : public ::testing::Test {
 protected:
  DeviceLists lists_{Topology()};
};

TEST_F(DeviceListsTest, EqualListsAreOneObjectAndOthersAreNot) {
  const DeviceListRef list = lists_.Intern(Devices{1, 4});
  EXPECT_EQ(list, lists_.Intern(Devices{1, 4}));
  EXPECT_NE(list, lists_.Intern(Devices{4, 1}));
  EXPECT_NE(list, lists_.Intern(Devices{1}));
}

TEST_F(DeviceListsTest, AListEndsWithItsLastUser) {
  DeviceListRef list = lists_.Intern(Devices{1, 4}), again = list;
  EXPECT_EQ(lists_.size(), 1u);
  EXPECT_TRUE(lists_.OnWorker(2).contains(list.get()));
  list.reset();
  EXPECT_EQ(lists_.size(), 1u);
  again.reset();
  EXPECT_EQ(lists_.size(), 0u);
  EXPECT_TRUE(lists_.OnWorker(0).empty());
  EXPECT_TRUE(lists_.OnWorker(2).empty());
}

TEST_F(DeviceListsTest, AListKnowsItsIslandsWorkersAndRanges) {
  const DeviceListRef list = lists_.Intern(Devices{5, 4, 1, 6, 0, 2});
  EXPECT_THAT(list->islands(), ElementsAre(1, 0));
  EXPECT_THAT(list->sorted(), ElementsAre(DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(4),
                                          DeviceId(5), DeviceId(6)));
  ASSERT_EQ(list->workers().size(), 4u);
  EXPECT_EQ(list->workers()[0].worker_number, 2u);
  EXPECT_EQ(list->workers()[0].island, 1u);
  EXPECT_THAT(list->workers()[0].ranges, ElementsAre(DeviceList::Range{0, 2}));
  EXPECT_EQ(list->workers()[1].worker_number, 0u);
  EXPECT_THAT(list->workers()[1].ranges,
              ElementsAre(DeviceList::Range{2, 1}, DeviceList::Range{4, 1}));
  EXPECT_EQ(lists_.OnWorker(0).at(list.get()), 1u);
}

TEST_F(DeviceListsTest, APositionOnAWorkerIsFoundFromAnyOther) {
  const DeviceListRef list = lists_.Intern(Devices{5, 4, 1, 6, 0, 2});
  const DeviceList::OnWorker& worker = list->workers()[1];  // positions 2 and 4
  EXPECT_EQ(worker.PositionFrom(0), 2u);
  EXPECT_EQ(worker.PositionFrom(2), 2u);
  EXPECT_EQ(worker.PositionFrom(3), 4u);
  EXPECT_EQ(worker.PositionFrom(5), std::nullopt);
  for (uint32_t i = 0; i < list->size(); ++i)
    EXPECT_EQ(list->workers()[list->WorkerAt(i)].PositionFrom(i), i);
}

TEST_F(DeviceListsTest, TheFirstDeviceAtFaultIsNamedAndNothingIsKept) {
  EXPECT_EQ(lists_.Intern(Devices{}), nullptr);
  EXPECT_EQ(lists_.FaultOf(Devices{})->kind, Kind::kEmpty);
  EXPECT_EQ(lists_.Intern(Devices{1, 2, 1, 99}), nullptr);
  EXPECT_EQ(lists_.FaultOf(Devices{1, 2, 1, 99})->kind, Kind::kRepeated);
  EXPECT_EQ(lists_.FaultOf(Devices{1, 2, 1, 99})->device, DeviceId(1));
  EXPECT_EQ(lists_.Intern(Devices{1, 99, 1}), nullptr);
  EXPECT_EQ(lists_.FaultOf(Devices{1, 99, 1})->kind, Kind::kForeign);
  EXPECT_EQ(lists_.FaultOf(Devices{1, 99, 1})->device, DeviceId(99));
  EXPECT_EQ(lists_.size(), 0u);
}

TEST_F(DeviceListsTest, ADeviceIsFoundWhereItIs) {
  const DeviceLocation* location = lists_.topology().Find(DeviceId(7));
  ASSERT_NE(location, nullptr);
  EXPECT_EQ(location->island, 1u);
  EXPECT_EQ(location->worker, 1u);
  EXPECT_EQ(location->local, 1u);
  EXPECT_EQ(location->worker_number, 3u);
  EXPECT_EQ(lists_.topology().Find(DeviceId(8)), nullptr);
}

}  // namespace
}  // namespace gangway
