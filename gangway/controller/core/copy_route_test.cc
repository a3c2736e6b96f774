// Unit tests of copy_route.h.
#include "gangway/controller/core/copy_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CopyRouteTest : public testing::Test {
 protected:
  CopyRoute Route(const Devices& from, const Devices& to) {
    return {fleet_.lists().topology(), fleet_.ListOf(from), fleet_.ListOf(to)};
  }
  Fleet fleet_{FourWorkers()};
};

TEST_F(CopyRouteTest, InsideOfAWorkerNothingIsLeft) {
  const CopyRoute route = Route({0, 1}, {1, 0});
  EXPECT_THAT(route.islands, ElementsAre(0));
  EXPECT_THAT(route.leaving_islands, IsEmpty());
  EXPECT_THAT(route.senders, IsEmpty());
  EXPECT_FALSE(route.crosses_workers);
}

TEST_F(CopyRouteTest, BetweenWorkersOfAnIslandNoIslandIsLeft) {
  const CopyRoute route = Route({0, 1}, {2, 0});
  EXPECT_THAT(route.leaving_islands, IsEmpty());
  EXPECT_TRUE(route.crosses_workers);
}

TEST_F(CopyRouteTest, BetweenIslandsTheSendersAreThoseWhoseShardsLeave) {
  const CopyRoute route = Route({6, 0, 2, 4}, {0, 4, 3, 5});
  EXPECT_THAT(route.islands, ElementsAre(0, 1)) << "of the destination first";
  EXPECT_THAT(route.leaving_islands, ElementsAre(1, 0));
  EXPECT_THAT(route.senders, ElementsAre(3, 0));
  EXPECT_TRUE(route.crosses_workers);
}

TEST_F(CopyRouteTest, OneListToItself) {
  const CopyRoute route = Route({0, 4}, {0, 4});
  EXPECT_THAT(route.islands, ElementsAre(0, 1));
  EXPECT_THAT(route.leaving_islands, IsEmpty());
  EXPECT_FALSE(route.crosses_workers);
}

}  // namespace
}  // namespace gangway::controller
