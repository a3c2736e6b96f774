// Tests of greeting.h.
#include "gangway/transport/local/greeting.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

using State = IncomingGreeting::State;

TEST(GreetingTest, ItMayArriveByteByByte) {
  IncomingGreeting greeting;
  for (size_t i = 0; i + 1 < kGreeting.size(); ++i) {
    EXPECT_EQ(greeting.left(), kGreeting.size() - i);
    EXPECT_EQ(greeting.Take(kGreeting.substr(i, 1)), State::kIncomplete);
  }
  EXPECT_EQ(greeting.Take(kGreeting.substr(kGreeting.size() - 1)), State::kComplete);
  EXPECT_EQ(greeting.left(), 0u);
}

TEST(GreetingTest, AStrangerIsKnownByItsFirstWrongByte) {
  IncomingGreeting greeting;
  EXPECT_EQ(greeting.Take(kGreeting.substr(0, 3)), State::kIncomplete);
  EXPECT_EQ(greeting.Take("x"), State::kOther);
  IncomingGreeting of_another_version;
  EXPECT_EQ(of_another_version.Take("gangway\x02"), State::kOther);
}

}  // namespace
}  // namespace gangway::transport
