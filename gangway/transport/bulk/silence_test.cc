// Tests of silence.h.
#include "gangway/transport/bulk/silence.h"

#include <gtest/gtest.h>

namespace gangway::transport {
namespace {

using std::chrono::seconds;

constexpr seconds kLimit{5};

TEST(Silence, NothingAwaitedIsNoSilence) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  EXPECT_FALSE(silence.IsTooLong(start + seconds(1000), kLimit));
  silence.Await(start);
  silence.Rest();
  EXPECT_FALSE(silence.awaits());
  EXPECT_FALSE(silence.IsTooLong(start + seconds(1000), kLimit));
}

TEST(Silence, ItBeginsWithTheLatestSignOfLifeOrTheFirstWait_TM1) {
  const Clock::time_point start = Clock::now();
  Silence silence;
  silence.Hear(start);
  silence.Await(start + seconds(100));
  silence.Await(start + seconds(104));  // does not move the beginning
  EXPECT_FALSE(silence.IsTooLong(start + seconds(104), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(105), kLimit));
  silence.Hear(start + seconds(103));
  silence.Hear(start + seconds(101));  // the latest counts
  EXPECT_FALSE(silence.IsTooLong(start + seconds(107), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(108), kLimit));
  silence.Rest();
  silence.Await(start + seconds(200));
  EXPECT_FALSE(silence.IsTooLong(start + seconds(204), kLimit));
  EXPECT_TRUE(silence.IsTooLong(start + seconds(205), kLimit));
}

}  // namespace
}  // namespace gangway::transport
