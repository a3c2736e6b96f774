// Tests of storages.h: what a reader finds, when shards go, and whose wait ends.
#include "gangway/worker/core/storages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gangway/wire/failure.h"
#include "gangway/worker/core/core_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = Storages::State;

constexpr StorageId kStorage(100);

wire::Failure Broken(const std::string& text) {
  return wire::MakeFailure(absl::StatusCode::kInternal, text);
}

class StoragesTest : public ::testing::Test {
 protected:
  // A pending storage with a shard on each of the devices.
  std::optional<wire::Failure> Make(StorageId id = kStorage,
                                    const std::vector<uint32_t>& devices = {10, 11}) {
    return storages_.Create({.storage = id, .held = Held<HeldShards>::New()},
                            fleet_.PositionsOf(Devices(devices)), actions_);
  }
  void Settle(std::optional<wire::Failure> failure = {}) {
    storages_.Settle(kStorage, failure, actions_);
  }
  // Why the shards cannot be used on these devices; empty: they can.
  std::string Refused(const wire::ArrayRef& ref, const std::vector<uint32_t>& devices = {10, 11}) {
    auto failure =
        storages_.Resolve(ref, fleet_.PositionsOf(Devices(devices)), "It", fleet_, shards_);
    return failure ? failure->message() : "";
  }
  std::vector<uint32_t> FreeShards(uint32_t first, uint32_t count) {
    storages_.FreeShards(RefTo(kStorage.number(), count, first).runs(0), actions_);
    std::vector<uint32_t> freed;
    for (const DropShards& drop : All<DropShards>(Taken(actions_)))
      freed.insert(freed.end(), drop.shards.begin(), drop.shards.end());
    return freed;
  }

  const Fleet fleet_ = FleetOfTwo();
  Storages storages_{"island0/worker0"};
  std::vector<ShardKey> shards_;  // of the last reference
  std::vector<Action> actions_;
};

TEST_F(StoragesTest, AStorageIsMadeOnceWithItsLocalShards) {
  EXPECT_FALSE(Make(kStorage, {24, 11, 10}));
  const CreateStorage made = All<CreateStorage>(Taken(actions_)).at(0);
  ASSERT_EQ(made.shards.size(), 2u);
  EXPECT_EQ(made.shards[0].shard, 1u);
  EXPECT_EQ(made.shards[0].device, 1);
  EXPECT_EQ(made.shards[1].shard, 2u);
  EXPECT_EQ(storages_.StateOf(kStorage), State::kPending);
  EXPECT_THAT(Make()->message(), HasSubstr("exists already"));
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_FALSE(storages_.CreateUnknown(kStorage));
  EXPECT_EQ(storages_.size(), 1u);
}

TEST_F(StoragesTest, AReferenceFindsTheShardOfEachLocalPosition) {
  Make();
  Make(StorageId(101));
  wire::ArrayRef ref = RefTo(100, 1, 1);
  *ref.add_runs() = RefTo(7, 1).runs(0);  // of another worker
  *ref.add_runs() = RefTo(101, 1).runs(0);
  EXPECT_EQ(Refused(ref, {11, 24, 10}), "");
  EXPECT_THAT(shards_, ElementsAre(ShardKey{StorageId(100), 1}, ShardKey{StorageId(101), 0}));
  EXPECT_TRUE(shards_[0].held.has_record());
}

TEST_F(StoragesTest, AReferenceThatDoesNotFitIsRefusedByName) {
  Make();
  EXPECT_THAT(Refused(RefTo(555, 2)), HasSubstr("storage 555, which island0/worker0 does not"));
  EXPECT_THAT(Refused(RefTo(100, 1)), HasSubstr("1 shards where 2 devices"));
  EXPECT_THAT(Refused(RefTo(100, 2, 1), {11, 10}),
              HasSubstr("shard 2 of storage 100, which has 2"));
  EXPECT_THAT(Refused(RefTo(100, 2), {11, 10}), HasSubstr("on device 10 where device 11 needs it"));
}

TEST_F(StoragesTest, AStorageOfUnknownShardsIsReadForItsFailure_ER1) {
  EXPECT_TRUE(storages_.CreateUnknown(kStorage));
  Settle(Broken("not prepared"));
  EXPECT_EQ(Refused(RefTo(100, 2)), "");
  EXPECT_EQ(storages_.FailureOf(kStorage)->message(), "not prepared");
  EXPECT_FALSE(storages_.HeldOf(kStorage).has_record());
}

TEST_F(StoragesTest, AShardIsDonatedAlone_OB1) {
  Make();
  storages_.Consume({.storage = kStorage, .shard = 0, .held = {}}, Ordinal(5));
  storages_.Consume({.storage = StorageId(555), .shard = 0, .held = {}}, Ordinal(5));
  EXPECT_THAT(Refused(RefTo(100, 1), {10}), HasSubstr("donated to gang 5"));
  EXPECT_EQ(Refused(RefTo(100, 1, 1), {11}), "");
}

TEST_F(StoragesTest, AShardIsFreedAloneAndOnce_OB1) {
  Make();
  EXPECT_THAT(FreeShards(1, 5), ElementsAre(1));
  EXPECT_THAT(FreeShards(1, 5), IsEmpty());
  EXPECT_THAT(Refused(RefTo(100, 1, 1), {11}), HasSubstr("on another worker"));
  EXPECT_EQ(Refused(RefTo(100, 1), {10}), "");
  EXPECT_THAT(FreeShards(0, 2), ElementsAre(0)) << "the other is free already";
  storages_.FreeShards(RefTo(555, 1).runs(0), actions_);
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(StoragesTest, TheFirstFailureStays_ER1) {
  Make();
  actions_.clear();
  Settle(Broken("the root cause"));
  Settle(Broken("an echo"));
  Settle();
  const auto poisons = All<PoisonStorage>(actions_);
  ASSERT_EQ(poisons.size(), 1u);
  EXPECT_EQ(poisons[0].failure.message(), "the root cause");
  EXPECT_EQ(storages_.StateOf(kStorage), State::kFailed);
  EXPECT_EQ(storages_.FailureOf(kStorage)->message(), "the root cause");
}

TEST_F(StoragesTest, AStorageThatIsPresentHasNoFailure) {
  Make();
  Settle();
  EXPECT_EQ(storages_.StateOf(kStorage), State::kPresent);
  EXPECT_EQ(storages_.FailureOf(kStorage), nullptr);
  EXPECT_TRUE(All<PoisonStorage>(actions_).empty());
  EXPECT_EQ(storages_.StateOf(StorageId(555)), State::kUnknown);
  EXPECT_EQ(storages_.FailureOf(StorageId(555)), nullptr);
}

TEST_F(StoragesTest, AWaitEndsOnceWithTheStorageOrItsFree) {
  Make();
  Make(StorageId(101));
  storages_.Await(kStorage, Ordinal(2));
  storages_.Await(kStorage, Ordinal(1));
  storages_.Await(StorageId(101), Ordinal(3));
  EXPECT_THAT(storages_.TakeWoken(), IsEmpty());
  storages_.Free(StorageId(101), actions_);
  Settle();
  Settle(Broken("too late for a waiter"));
  EXPECT_THAT(storages_.TakeWoken(), ElementsAre(Ordinal(3), Ordinal(2), Ordinal(1)));
  EXPECT_THAT(storages_.TakeWoken(), IsEmpty());
}

TEST_F(StoragesTest, AFreedStorageIsDroppedAndForgotten) {
  Make();
  actions_.clear();
  storages_.Free(kStorage, actions_);
  storages_.Free(kStorage, actions_);
  EXPECT_EQ(All<DropStorage>(actions_).size(), 1u);
  EXPECT_EQ(storages_.size(), 0u);
  EXPECT_EQ(storages_.StateOf(kStorage), State::kUnknown);
}

TEST_F(StoragesTest, AStopPoisonsAllThatTheServiceHolds) {
  Make();
  Make(StorageId(101));
  Settle();
  actions_.clear();
  storages_.PoisonAll(Broken("it stops"), actions_);
  EXPECT_EQ(All<PoisonStorage>(actions_).size(), 2u);
  EXPECT_EQ(storages_.StateOf(kStorage), State::kPresent);
}

}  // namespace
}  // namespace gangway::worker
