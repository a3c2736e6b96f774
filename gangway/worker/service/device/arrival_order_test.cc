// Tests of arrival_order.h.
#include "gangway/worker/service/device/arrival_order.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ArrivalOrder, AGangWaitsForAllMembersOfThoseBeforeIt) {
  ArrivalOrder order;
  order.Add(Ordinal(1), 2);
  order.Add(Ordinal(2), 1);
  std::vector<int> arrived;  // by one thread at a time: in turns
  std::thread later([&] {
    EXPECT_TRUE(order.AwaitTurn(Ordinal(2), Clock::now() + seconds(60)).ok());
    arrived.push_back(2);
    order.Arrive(Ordinal(2));
  });
  EXPECT_TRUE(order.AwaitTurn(Ordinal(1), Clock::now()).ok());
  arrived.push_back(1);
  order.Arrive(Ordinal(1));
  const absl::Status early = order.AwaitTurn(Ordinal(2), Clock::now() + milliseconds(20));
  EXPECT_EQ(early.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(early.message()), testing::HasSubstr("Gang 1"));
  order.Arrive(Ordinal(1));
  later.join();
  EXPECT_THAT(arrived, testing::ElementsAre(1, 2));
}

TEST(ArrivalOrder, AGangThatIsGoneOrHasNoMembersHoldsUpNobody) {
  ArrivalOrder order;
  order.Add(Ordinal(1), 1);
  order.Add(Ordinal(2), 0);
  order.Add(Ordinal(3), 1);
  order.Arrive(Ordinal(1));
  order.Arrive(Ordinal(1));  // nothing is left of it
  EXPECT_TRUE(order.AwaitTurn(Ordinal(3), Clock::now()).ok());
}

}  // namespace
}  // namespace gangway::worker
