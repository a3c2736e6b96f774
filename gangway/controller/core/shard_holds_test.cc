// Unit tests of shard_holds.h (OB-1).
#include "gangway/controller/core/shard_holds.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ShardRange kAll{0, 4};

class ShardHoldsTest : public ::testing::Test {
 protected:
  std::vector<ShardRange> LetGo(ShardRange range) {
    std::vector<ShardRange> freed;
    holds_.LetGo(range, freed);
    return freed;
  }
  std::vector<ShardRange> Take(ShardRange range) {
    std::vector<ShardRange> freed;
    holds_.Take(range, freed);
    return freed;
  }

  ShardHolds holds_{4};
};

TEST_F(ShardHoldsTest, TheLastArrayFreesAllShardsOB1) {
  holds_.Hold(kAll);
  holds_.Hold(kAll);
  EXPECT_THAT(LetGo(kAll), IsEmpty());
  EXPECT_FALSE(holds_.all_gone());
  EXPECT_THAT(LetGo(kAll), ElementsAre(kAll));
  EXPECT_FALSE(holds_.held());
  EXPECT_TRUE(holds_.all_gone());
}

TEST_F(ShardHoldsTest, AViewKeepsItsShardsOnlyOB1) {
  holds_.Hold(kAll);
  holds_.Hold({1, 2});
  EXPECT_THAT(LetGo(kAll), ElementsAre(ShardRange{0, 1}, ShardRange{3, 1}));
  EXPECT_TRUE(holds_.held());
  EXPECT_TRUE(holds_.gone(0));
  EXPECT_FALSE(holds_.gone(1));
  EXPECT_TRUE(holds_.any_gone(kAll));
  EXPECT_FALSE(holds_.any_gone({1, 2}));
  EXPECT_THAT(LetGo({1, 2}), ElementsAre(ShardRange{1, 2}));
  EXPECT_TRUE(holds_.all_gone());
  EXPECT_FALSE(holds_.held());
}

TEST_F(ShardHoldsTest, WhatIsTakenIsGoneForAllAndFreedOnceOB1) {
  holds_.Hold(kAll);
  holds_.Hold({0, 1});
  EXPECT_THAT(Take({0, 2}), ElementsAre(ShardRange{0, 2}));
  EXPECT_THAT(Take({1, 2}), ElementsAre(ShardRange{2, 1}));
  EXPECT_EQ(holds_.gone_count(), 3u);
  EXPECT_THAT(LetGo({0, 1}), IsEmpty());
  EXPECT_THAT(LetGo(kAll), ElementsAre(ShardRange{3, 1}));
}

TEST_F(ShardHoldsTest, ShardsAreLetGoOneByOneOB1) {
  for (uint32_t shard = 0; shard < 4; ++shard) holds_.Hold({shard, 1});
  EXPECT_THAT(LetGo({2, 1}), ElementsAre(ShardRange{2, 1}));
  EXPECT_TRUE(holds_.held());
  EXPECT_THAT(LetGo({0, 1}), ElementsAre(ShardRange{0, 1}));
  EXPECT_THAT(Take(kAll), ElementsAre(ShardRange{1, 1}, ShardRange{3, 1}));
  EXPECT_THAT(LetGo({1, 1}), IsEmpty());
  EXPECT_THAT(LetGo({3, 1}), IsEmpty());
  EXPECT_FALSE(holds_.held());
}

}  // namespace
}  // namespace gangway::controller
