// When storages are freed, what a lost worker takes with it, and what the books hold for them.
#include "gangway/scheduler/core/storages.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

constexpr uint64_t kBytes = 16;

class StoragesTest : public ::testing::Test {
 protected:
  // A storage that a node has made, which has ended.
  void Have(uint64_t id, const std::vector<uint32_t>& devices) {
    Make(id, devices);
    storages_.Settle(StorageId(id), Ordinal(id), nullptr);
  }
  // Node `id` writes storage `id`.
  void Make(uint64_t id, const std::vector<uint32_t>& devices) {
    const NodeState node = LaunchNode(id, devices, two_);
    storages_.Write(node, StorageId(id), two_.LayoutOf(devices), kBytes);
    storages_.Use(StorageId(id));
    books_.Charge(SessionId(7), node.devices(), kBytes);
    storages_.NoteCharged({StorageId(id)});
  }
  void Free(uint64_t id, uint64_t latest = 100) {
    wire::Free free;
    free.add_storages(id);
    storages_.Free(free, Ordinal(latest));
  }
  void FreeShard(uint64_t id, uint32_t shard, uint64_t latest = 100) {
    wire::Free free;
    wire::ShardRun* run = free.add_shards();
    run->set_storage(id);
    run->set_first(shard);
    run->set_count(1);
    storages_.Free(free, Ordinal(latest));
  }
  // How many workers were told to free something since the last call.
  size_t Frees() {
    const Actions actions = two_.Take();
    return ItemsFor(0, actions, [](const auto& item) { return item.has_free(); }).size() +
           ItemsFor(1, actions, [](const auto& item) { return item.has_free(); }).size();
  }
  void Lose(uint32_t worker, const std::set<Ordinal>& held_back = {}) {
    storages_.Lose(worker, wire::Share(wire::MakeFailure(absl::StatusCode::kDataLoss, "lost")),
                   held_back);
  }
  uint64_t Used(uint32_t device) const { return books_.ledger().used_bytes(IslandDevice(device)); }
  wire::FailureRef LostShard(uint64_t id, const std::vector<uint32_t>& devices) const {
    wire::ArrayRef ref;
    wire::ShardRun* run = ref.add_runs();
    run->set_storage(id);
    run->set_count(static_cast<uint32_t>(devices.size()));
    return storages_.LostShard(ref, {devices.begin(), devices.end()});
  }

  TwoWorkerFleet two_;
  Books books_{4, 0};
  Storages storages_{two_.fleet, books_, two_.outbox};
};

// OB-1.
TEST_F(StoragesTest, AStorageIsFreedOnceNoHandleAndNoNodeIsLeft) {
  Have(1, {0, 2});
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(9), false));
  Free(1);
  EXPECT_EQ(Frees(), 0u);
  storages_.EndUse(StorageId(1), Ordinal(9));
  EXPECT_EQ(Frees(), 2u);
  EXPECT_EQ(storages_.size(), 0u);
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(StoragesTest, WhatASpoiledStorageHoldsIsFreedBeforeItsHandleGoes) {
  Make(1, {0});
  storages_.Settle(StorageId(1), Ordinal(1),
                   wire::Share(wire::MakeFailure(absl::StatusCode::kInternal, "it failed")));
  EXPECT_EQ(Frees(), 1u);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(storages_.FailureOf(StorageId(1))->message(), "it failed");
  Free(1);
  EXPECT_EQ(Frees(), 0u);
  EXPECT_EQ(storages_.size(), 0u);
}

TEST_F(StoragesTest, AShardIsFreedOnceTheNodesUpToItsDropHaveEnded) {
  Have(1, {0, 2});
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(9), false));
  FreeShard(1, 1, /*latest=*/9);
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(10), false));  // it does not read that shard
  EXPECT_EQ(Used(2), kBytes);
  storages_.EndUse(StorageId(1), Ordinal(9));
  EXPECT_EQ(Used(2), 0u);
  EXPECT_EQ(Used(0), kBytes);
  EXPECT_EQ(Frees(), 1u);
}

TEST_F(StoragesTest, AConsumerWaitsForEarlierReaders) {
  Have(1, {0});
  NodeState reader = LaunchNode(8, {0}, two_);
  reader.reads = {StorageId(1)};
  EXPECT_FALSE(storages_.Read(StorageId(1), Ordinal(8), false)->waits_for_readers);
  EXPECT_TRUE(storages_.Read(StorageId(1), Ordinal(9), true)->waits_for_readers);
  EXPECT_EQ(storages_.EndReads(reader), std::vector{Ordinal(9)});
}

TEST_F(StoragesTest, WhatIsConsumedIsNoLongerCharged) {
  Have(1, {0, 2});
  storages_.Consume(Ordinal(9),
                    {{StorageId(1), 1, 1}, {StorageId(1), 7, 2}, {StorageId(99), 0, 1}});
  EXPECT_EQ(Used(0), kBytes);
  EXPECT_EQ(Used(2), 0u);
}

// A transfer may hold the buffers until it ends, but nodes behind the consumer do not.
TEST_F(StoragesTest, WhatIsConsumedIsChargedUntilEarlierNodesThatMayHoldItHaveEnded_GS2) {
  Have(1, {0, 2});
  storages_.NoteCopied({StorageId(1)}, wire::Copy());
  for (uint64_t reader : {7, 8}) ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(reader), false));
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(9), true));
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(10), false));  // of the other shard
  storages_.Consume(Ordinal(9), {{StorageId(1), 1, 1}});
  for (uint64_t ended : {9, 10, 7}) {
    storages_.EndUse(StorageId(1), Ordinal(ended));
    EXPECT_EQ(Used(2), kBytes) << ended;
  }
  storages_.EndUse(StorageId(1), Ordinal(8));
  EXPECT_EQ(Used(2), 0u);
  EXPECT_EQ(Used(0), kBytes);
}

TEST_F(StoragesTest, AConsumerThatFailsLeavesWhatItWouldHaveConsumed) {
  Have(1, {0});
  storages_.BeginFetch({StorageId(1)});
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(8), false));
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(9), true));
  for (uint64_t ended : {8, 9}) storages_.EndUse(StorageId(1), Ordinal(ended));
  EXPECT_EQ(Used(0), kBytes);
}

TEST_F(StoragesTest, AWorkerTakesItsShardsWithIt) {
  Have(1, {0, 1});
  Have(2, {0, 2});
  Have(3, {2, 3});
  Lose(0);
  EXPECT_NE(storages_.FailureOf(StorageId(1)), nullptr);  // all of its shards
  EXPECT_EQ(storages_.FailureOf(StorageId(2)), nullptr);
  EXPECT_NE(LostShard(2, {0, 2}), nullptr);
  EXPECT_EQ(LostShard(2, {2, 3}), nullptr);  // devices that it is not said to have
  EXPECT_EQ(LostShard(3, {2, 3}), nullptr);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(Used(2), 2 * kBytes);
  Lose(1);
  EXPECT_NE(storages_.FailureOf(StorageId(2)), nullptr);
  for (uint64_t id : {1, 2, 3}) Free(id);
  EXPECT_EQ(storages_.size(), 0u);
}

TEST_F(StoragesTest, AStorageFailsAsAWholeWithAProducerThatHasNotEnded) {
  Make(1, {0, 2});
  Make(2, {0, 2});
  Lose(0, /*held_back=*/{Ordinal(2)});
  EXPECT_NE(storages_.FailureOf(StorageId(1)), nullptr);
  EXPECT_EQ(storages_.FailureOf(StorageId(2)), nullptr);
  EXPECT_EQ(LostShard(2, {0, 2}), nullptr);
}

// Which no controller does. What was to go of its former shards does not concern the new ones.
TEST_F(StoragesTest, AStorageThatIsWrittenTwiceIsWhereItWasWrittenLast) {
  Have(1, {0, 1});
  storages_.NoteCopied({StorageId(1)}, wire::Copy());
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(7), false));
  ASSERT_TRUE(storages_.Read(StorageId(1), Ordinal(8), true));
  storages_.Consume(Ordinal(8), {{StorageId(1), 0, 1}});
  FreeShard(1, 0, /*latest=*/8);
  Make(1, {2});
  for (uint64_t ended : {7, 8}) storages_.EndUse(StorageId(1), Ordinal(ended));
  EXPECT_EQ(Frees(), 0u);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(Used(2), kBytes);
  Lose(0);
  EXPECT_EQ(storages_.FailureOf(StorageId(1)), nullptr);
}

TEST_F(StoragesTest, UnknownStoragesAreIgnored) {
  EXPECT_FALSE(storages_.Read(StorageId(9), Ordinal(1), true));
  Free(9);
  FreeShard(9, 0);
  storages_.EndUse(StorageId(9), Ordinal(1));
  storages_.Settle(StorageId(9), Ordinal(1), nullptr);
  EXPECT_EQ(storages_.ProducerOf(StorageId(9)), Ordinal());
  EXPECT_EQ(storages_.size(), 0u);
}

}  // namespace
}  // namespace gangway::scheduler
