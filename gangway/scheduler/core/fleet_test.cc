// What a fleet knows of devices by the topology, and of the processes of its workers.
#include "gangway/scheduler/core/fleet.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

TEST(FleetTest, NamesLeadBackToTheirWorkers) {
  const TwoWorkerFleet two;
  EXPECT_EQ(two.fleet.NameOf(1), "island0/worker1");
  EXPECT_EQ(two.fleet.FindName("island0/worker1"), 1u);
  for (const char* name : {"island0/worker2", "island1/worker0", "island0/worker", "worker1", ""})
    EXPECT_EQ(two.fleet.FindName(name), std::nullopt) << name;
  EXPECT_EQ(two.fleet.DeviceOf(1, 1), IslandDevice(3));
  EXPECT_EQ(two.fleet.IndexOnWorker(IslandDevice(3)), 1u);
  EXPECT_EQ(two.fleet.DeviceOf(1, 2), std::nullopt);
  EXPECT_EQ(two.fleet.DeviceOf(2, 0), std::nullopt);
}

TEST(FleetTest, EachStartAndEachEndOfAProcessIsAnEpoch) {
  Fleet fleet(0, TwoWorkers());
  EXPECT_EQ(fleet.epoch(), 0u);
  fleet.Start(Registration(0, 11), 100);
  EXPECT_EQ(fleet.epoch(), 1u);
  EXPECT_TRUE(fleet.IsUp(0, Incarnation(11)));
  EXPECT_FALSE(fleet.IsUp(0, Incarnation(12)));
  EXPECT_FALSE(fleet.IsUp(1, Incarnation()));
  EXPECT_FALSE(fleet.IsUp(2, Incarnation(11)));
  fleet.Stop(0);
  EXPECT_EQ(fleet.epoch(), 2u);
  EXPECT_FALSE(fleet.IsUp(0, Incarnation(11)));
}

TEST(FleetTest, BytesMayArriveAtTheProcessThatTheyWereSentToOrAtItsSuccessor) {
  Fleet fleet(0, TwoWorkers());
  const auto may = [&fleet](uint64_t incarnation, bool next) {
    wire::Destination to;
    to.set_incarnation(incarnation);
    to.set_next(next);
    return fleet.MayGetBytes(to);
  };
  EXPECT_TRUE(may(5, true));  // down: an earlier scheduler knew 5
  EXPECT_FALSE(may(5, false));
  EXPECT_FALSE(may(4, true));
  fleet.Start(Registration(0, 11), 0);
  EXPECT_TRUE(may(11, false));
  EXPECT_TRUE(may(5, true));
  EXPECT_FALSE(may(11, true));
  fleet.Stop(0);
  EXPECT_FALSE(may(11, false));
  EXPECT_TRUE(may(11, true));
  EXPECT_FALSE(may(5, true));
}

TEST(FleetTest, AProcessIsToldToEndOnce) {
  TwoWorkerFleet two;
  EXPECT_TRUE(two.fleet.NoteToldToEnd(0, Ordinal(3)));
  EXPECT_FALSE(two.fleet.NoteToldToEnd(0, Ordinal(4)));
  EXPECT_EQ(two.fleet.ToldToEndFor(0), Ordinal(3));
  two.fleet.Stop(0);
  EXPECT_EQ(two.fleet.ToldToEndFor(0), Ordinal(3));  // why it is gone
  two.fleet.Start(Registration(0, 12), 0);
  EXPECT_EQ(two.fleet.ToldToEndFor(0), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
