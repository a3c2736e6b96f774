// Which lists of shards get an array, and when such an array goes.
#include "gangway/frontdoor/pjrt/gathered_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/base/ids.h"
#include "gangway/client/array_literal.h"

namespace gangway::pjrt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Shards = std::vector<ShardOf>;

class GatheredCacheTest : public testing::Test {
 protected:
  // The arrays that a call names its lists by; 0: as lists. The call ends at once.
  std::vector<uint64_t> Name(const std::vector<Shards>& lists, bool donated = false) {
    std::vector<GatheredCache::List> named;
    for (const Shards& shards : lists) named.push_back({.shards = shards, .is_donated = donated});
    cache_.Name(named);
    std::vector<uint64_t> arrays;
    for (const GatheredCache::List& list : named)
      arrays.push_back(list.array == nullptr ? 0 : NumberOf(*list.array));
    return arrays;
  }

  std::vector<GatheredArray> Gather(const std::vector<Shards>& lists) {
    ++operations_;
    std::vector<GatheredArray> arrays;
    for (size_t i = 0; i < lists.size(); ++i) {
      ++alive_;
      arrays.emplace_back(new ArrayHandle{next_++}, [this](const ArrayHandle* last) {
        --alive_;
        delete last;
      });
    }
    return arrays;
  }

  int operations_ = 0, alive_ = 0;
  uint64_t next_ = 1001;
  GatheredCache cache_{[this](const std::vector<Shards>& lists) { return Gather(lists); },
                       {.lists = 4, .shards = 16, .idle_calls = 3}};
};

const Shards kA = {{1_array, 0}, {2_array, 0}}, kB = {{3_array, 0}, {4_array, 1}},
             kSwapped = {{2_array, 0}, {1_array, 0}};

TEST_F(GatheredCacheTest, TheFirstRepetitionMakesAnArrayAndLaterCallsNameIt_DF_1) {
  EXPECT_THAT(Name({kA, kB}), ElementsAre(0, 0));
  EXPECT_EQ(operations_, 0);
  EXPECT_THAT(Name({kA, kB}), ElementsAre(1001, 1002));
  EXPECT_THAT(Name({kB, kA}), ElementsAre(1002, 1001));
  EXPECT_EQ(operations_, 1);  // for both
}

TEST_F(GatheredCacheTest, AListIsItsArraysIndicesAndTheirOrder) {
  Name({kA});
  EXPECT_THAT(Name({kSwapped}), ElementsAre(0));
  EXPECT_THAT(Name({{{1_array, 0}, {2_array, 1}}}), ElementsAre(0));
  EXPECT_THAT(Name({{{1_array, 0}}}), ElementsAre(0));
  EXPECT_THAT(Name({kA}), ElementsAre(1001));
}

TEST_F(GatheredCacheTest, AListThatACallHasTwiceGetsOneArray) {
  Name({kA});
  EXPECT_THAT(Name({kA, kA}), ElementsAre(1001, 1001));
  EXPECT_EQ(alive_, 1);
}

TEST_F(GatheredCacheTest, AnArrayGoesWithTheFirstOfItsShards_OB_1) {
  for (int call = 0; call < 2; ++call) Name({kA, kSwapped, kB});
  EXPECT_EQ(alive_, 3);
  EXPECT_EQ(cache_.Forget({2_array, 0}).size(), 2);  // and they are dropped here
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(cache_.size(), 1);
  EXPECT_THAT(cache_.Forget({2_array, 0}), IsEmpty());
  EXPECT_THAT(cache_.Forget({4_array, 0}), IsEmpty());  // B has shard 1 of this array
  EXPECT_EQ(cache_.Forget({4_array, 1}).size(), 1);
  EXPECT_EQ(alive_, 0);
}

TEST_F(GatheredCacheTest, ADonatedListIsNamedByItsArrayAndMakesNone) {
  Name({kA});
  EXPECT_THAT(Name({kA}, /*donated=*/true), ElementsAre(0));
  EXPECT_EQ(alive_, 0);
  EXPECT_THAT(Name({kA}), ElementsAre(1001));
  EXPECT_THAT(Name({kA}, /*donated=*/true), ElementsAre(1001));
}

TEST_F(GatheredCacheTest, ManyListsStayWithinTheLimits) {
  for (uint64_t number = 1; number <= 10'000; ++number) {
    const ArrayHandle array{number};
    for (int call = 0; call < 2; ++call) Name({{{array, 0}, {array, 1}}});
    ASSERT_LE(cache_.size(), 4);
    ASSERT_EQ(alive_, cache_.size());
  }
  EXPECT_EQ(operations_, 10'000);  // the idle ones made room
}

TEST_F(GatheredCacheTest, ShardsAreLimitedToo) {
  const auto list_from = [](uint64_t first) {
    Shards list;
    for (uint64_t array = first; array < first + 7; ++array)
      list.push_back({ArrayHandle(array), 0});
    return list;
  };
  for (int call = 0; call < 2; ++call) Name({list_from(1), list_from(11), list_from(21)});
  EXPECT_EQ(cache_.size(), 2);
  EXPECT_THAT(Name({Shards(17, {1_array, 0})}), ElementsAre(0));
  EXPECT_THAT(Name({Shards(17, {1_array, 0})}), ElementsAre(0));  // more than ever fit
}

TEST_F(GatheredCacheTest, WhileAllAreInUseFurtherListsStayLists) {
  std::vector<Shards> lists;
  for (uint64_t array = 1; array <= 6; ++array) lists.push_back({{ArrayHandle(array), 0}});
  for (int call = 0; call < 100; ++call) Name(lists);
  EXPECT_EQ(alive_, 4);
  EXPECT_EQ(next_, 1005);  // none was replaced
}

TEST_F(GatheredCacheTest, ACallsArraysOutliveTheirPlaceInTheCache) {
  Name({kA});
  std::vector<GatheredCache::List> lists = {{.shards = kA}};
  cache_.Name(lists);
  EXPECT_TRUE(lists[0].is_new);
  EXPECT_EQ(cache_.Forget({1_array, 0}).size(), 1);
  EXPECT_EQ(alive_, 1);
  lists.clear();
  EXPECT_EQ(alive_, 0);
}

}  // namespace
}  // namespace gangway::pjrt
