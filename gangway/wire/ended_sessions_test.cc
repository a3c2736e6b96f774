// Which sessions have ended, in few runs.
#include "gangway/wire/ended_sessions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>

namespace gangway::wire {
namespace {

TEST(EndedSessionsTest, NoneIsForgottenHoweverManyEnd) {
  EndedSessions ended;
  for (uint64_t number = 1; number <= 100'000; ++number)
    if (number != 7 && number != 50'000) ended.Insert(SessionId(number));
  EXPECT_TRUE(ended.Contains(SessionId(1)));
  EXPECT_FALSE(ended.Contains(SessionId(7)));
  EXPECT_TRUE(ended.Contains(SessionId(8)));
  EXPECT_FALSE(ended.Contains(SessionId(50'000)));
  EXPECT_FALSE(ended.Contains(SessionId(100'001)));
  EXPECT_EQ(ended.run_count(), 3u);
}

TEST(EndedSessionsTest, RunsAreBounded) {
  EndedSessions ended;
  for (uint64_t number = 1; number <= 4 * EndedSessions::kRunsMax; number += 2)
    ended.Insert(SessionId(number));
  EXPECT_EQ(ended.run_count(), EndedSessions::kRunsMax);
  EXPECT_FALSE(ended.Contains(SessionId(1)));
  EXPECT_TRUE(ended.Contains(SessionId(4 * EndedSessions::kRunsMax - 1)));
}

// Also runs of a message, which overlap, lie in one another, or are the wrong way round.
TEST(EndedSessionsTest, AnyOrderGivesTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    EndedSessions ended;
    std::set<uint64_t> expected;
    for (int i = 0; i < 12; ++i) {
      const uint64_t first = random() % 64;
      const uint64_t last = random() % 3 == 0 ? first + random() % 9 : first;
      EndedSessions::Runs runs;
      runs.Add()->set_first(first);
      runs[0].set_last(random() % 20 == 0 ? 0 : last);
      ended.Insert(runs);
      for (uint64_t number = std::max<uint64_t>(first, 1); number <= runs[0].last(); ++number)
        expected.insert(number);
    }
    size_t count = 0;
    for (uint64_t number = 0; number <= 75; ++number) {
      EXPECT_EQ(ended.Contains(SessionId(number)), expected.contains(number)) << number;
      count += expected.contains(number) && !expected.contains(number - 1) ? 1 : 0;
    }
    EXPECT_EQ(ended.run_count(), count);
  }
}

TEST(EndedSessionsTest, AMessageGivesTheSame) {
  EndedSessions ended, again;
  for (const uint64_t number : {1, 2, 3, 9, 11}) ended.Insert(SessionId(number));
  ended.Insert(SessionId(std::numeric_limits<uint64_t>::max()));
  EndedSessions::Runs runs;
  ended.AppendTo(runs);
  ASSERT_EQ(runs.size(), 4);
  again.Insert(SessionId(10));
  again.Insert(runs);
  for (const uint64_t number : {1, 2, 3, 9, 10, 11}) EXPECT_TRUE(again.Contains(SessionId(number)));
  EXPECT_FALSE(again.Contains(SessionId(4)));
  EXPECT_TRUE(again.Contains(SessionId(std::numeric_limits<uint64_t>::max())));
  EXPECT_EQ(again.run_count(), 3u);
}

}  // namespace
}  // namespace gangway::wire
