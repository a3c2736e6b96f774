// Shards of one storage that are freed, donated and read alone (OB-1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

using ::testing::ElementsAre;

struct Shard {
  uint64_t storage = 0;
  uint32_t index = 0;
};

class ShardsTest : public IslandTest {
 protected:
  void LaunchOn(uint64_t ordinal, uint64_t executable, const std::vector<Shard>& arguments,
                uint64_t result, bool donate = false) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Launch* launch = item.mutable_node()->mutable_launch();
    launch->set_executable(executable);
    for (const Shard& shard : arguments)
      Refer(launch->add_arguments(), shard.storage, 1, shard.index);
    launch->add_results(result);
    if (donate) launch->add_donated(0);
    Item(item);
  }
  void FreeShard(const Shard& shard) {
    wire::IslandItem item;
    wire::ShardRun* run = item.mutable_free()->add_shards();
    run->set_storage(shard.storage);
    run->set_first(shard.index);
    run->set_count(1);
    Item(item);
  }
  // Of the last step.
  int SentShardFrees(uint32_t worker) const {
    return Sent(worker, [](const auto& item) { return item.free().shards_size() > 0; });
  }
};

TEST_F(ShardsTest, TheMemoryOfAFreedShardIsFreeAtOnce_OB1) {
  Have(50, {0, 2});
  FreeShard({50, 1});
  EXPECT_EQ(Used(0), kBytes);
  EXPECT_EQ(Used(2), 0u);
  EXPECT_EQ(SentShardFrees(0), 0);
  EXPECT_EQ(SentShardFrees(1), 1);
  FreeShard({50, 1});  // nothing is counted twice
  FreeShard({50, 9});
  FreeShard({99, 0});
  Free({50});
  ExpectEmpty();
}

TEST_F(ShardsTest, AnArrayWithShardsElsewhereKnowsItsOwnByNumber_OB1) {
  Upload(1, 50, {4, 0, 5, 3});
  for (uint32_t worker : {0, 1}) Done(worker, 1);
  FreeShard({50, 0});  // on another island
  EXPECT_EQ(Used(0) + Used(3), 2 * kBytes);
  FreeShard({50, 3});
  EXPECT_EQ(Used(0), kBytes);
  EXPECT_EQ(Used(3), 0u);
  Free({50});
  ExpectEmpty();
}

TEST_F(ShardsTest, AFreedShardWaitsForEarlierNodesOnly_OB1) {
  Load(1, {0});
  Have(50, {0, 1});
  LaunchOn(1, 1, {{50, 0}}, 60);
  FreeShard({50, 1});
  EXPECT_EQ(Used(1), kBytes) << "a node uses the storage";
  LaunchOn(2, 1, {{50, 0}}, 61);
  Done(0, 1);
  EXPECT_EQ(Used(1), 0u) << "later nodes cannot use the shard";
  EXPECT_EQ(SentShardFrees(0), 1);
  Done(0, 2);
  Free({50, 60, 61});
  ExpectEmpty();
}

TEST_F(ShardsTest, DonationOfAShardIsChargedOnItsDeviceOnly_GS2) {
  Make(/*budget_bytes=*/kBytes * 3 / 2);
  Load(1, {0}, 0, /*alias_bytes=*/kBytes);
  Have(50, {0, 1});
  LaunchOn(1, 1, {{50, 0}}, 60, /*donate=*/true);
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_EQ(Used(0), kBytes);
  EXPECT_EQ(Used(1), kBytes);
  FreeShard({50, 0});
  EXPECT_EQ(Used(0), kBytes) << "it is the result's";
  Free({50, 60});
  ExpectEmpty();
}

// The consumer of a shard waits for the readers that came before it. A later reader of another shard may need its
// result.
TEST_F(ShardsTest, AConsumerDoesNotWaitForLaterReadersOfOtherShards_OB1) {
  Make(0, /*window=*/1);
  Load(1, {0});
  Load(2, {0, 1});
  Load(3, {1});
  Have(50, {0, 1});
  Have(51, {0});
  Launch(1, 1, 51, 1, 60);
  Launch(2, 2, 50, 2, 61);                         // waits for a slot
  LaunchOn(3, 1, {{50, 0}}, 62, /*donate=*/true);  // waits for 2
  Copy(4, 62, {0}, 63, {1});                       // waits for 3
  LaunchOn(5, 3, {{50, 1}, {63, 0}}, 64);          // waits for 4, and reads storage 50
  LaunchOn(6, 3, {{50, 1}}, 65, /*donate=*/true);  // waits for 2 and 5
  EXPECT_THAT(TakeReleased(), ElementsAre(1));
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(2));
  Done(0, 2);
  EXPECT_THAT(TakeReleased(), ElementsAre(3, 4, 5));
  for (uint64_t ordinal : {3, 4, 5}) Done(0, ordinal);
  EXPECT_THAT(TakeReleased(), ElementsAre(6));
  Done(0, 6);
  Free({50, 51, 60, 61, 62, 63, 64, 65});
  ExpectEmpty();
}

TEST_F(ShardsTest, AReaderThatFailsLetsTheConsumerGo_ER2) {
  Make(0, /*window=*/1);
  Load(1, {0});
  Have(50, {0, 1});
  Have(51, {0});
  Launch(1, 1, 51, 1, 60);
  LaunchOn(2, 1, {{50, 0}}, 61);  // waits for a slot
  LaunchOn(3, 1, {{50, 0}}, 62, /*donate=*/true);
  Cancel(2);
  Done(0, 1);
  EXPECT_THAT(TakeReleased(), ElementsAre(1, 3));
  Done(0, 3);
  Free({50, 51, 60, 61, 62});
  ExpectEmpty();
}

}  // namespace
}  // namespace gangway::scheduler
