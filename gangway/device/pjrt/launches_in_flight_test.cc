// Tests of launches_in_flight.h.
#include "gangway/device/pjrt/launches_in_flight.h"

#include "gtest/gtest.h"

namespace gangway::device {
namespace {

constexpr int kFirst = 0, kSecond = 1;  // programs, by their addresses

TEST(LaunchesInFlight, AnIdIsOneLaunchesUntilAllItsMembersHaveEnded) {
  LaunchesInFlight launches;
  for (int device : {0, 1, 2}) EXPECT_TRUE(launches.Begin(7, &kFirst, device).ok());
  EXPECT_TRUE(launches.Begin(8, &kSecond, 0).ok()) << "another id";
  const auto taken = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(launches.Begin(7, &kSecond, 3).code(), taken) << "another program";
  EXPECT_EQ(launches.Begin(7, &kFirst, 1).code(), taken) << "the next launch";
  launches.End(7);
  launches.End(7);
  EXPECT_EQ(launches.Begin(7, &kFirst, 1).code(), taken) << "a member still runs";
  launches.End(7);
  EXPECT_TRUE(launches.Begin(7, &kSecond, 1).ok());
}

TEST(LaunchesInFlight, ZeroIsNoId) {
  LaunchesInFlight launches;
  EXPECT_EQ(launches.Begin(0, &kFirst, 0).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gangway::device
