// Unit tests of storages.h.
#include "gangway/controller/core/storages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr bool kPending = true, kSettled = false;

class StoragesTest : public testing::Test {
 protected:
  // A storage that one array holds as a whole.
  controller::Run Have(const Devices& devices, Ordinal producer = {}) {
    const StorageId id =
        storages_.Add(SessionId(1), fleet_.ListOf(devices), /*shard_bytes=*/8, producer);
    const controller::Run run{id, 0, static_cast<uint32_t>(devices.size())};
    storages_.Hold(run);
    return run;
  }
  void Lose(size_t worker, const std::string& why, bool pending = kSettled) {
    storages_.Lose(worker, SomeFailure(why), [pending](Ordinal) { return pending; });
  }
  std::string MessageOf(const controller::Run& run) const {
    const wire::FailureRef failure = storages_.FailureOf(run);
    return failure ? failure->message() : "";
  }
  std::vector<std::string> Freed() { return FreesIn(outbox_.Take()); }

  Fleet fleet_{FourWorkers()};
  Outbox outbox_{2, {}, std::chrono::milliseconds(1000)};
  Storages storages_{fleet_.lists(), outbox_};
};

TEST_F(StoragesTest, TheLastArrayFreesItOnAllItsIslands_OB1) {
  const controller::Run run = Have({1, 4});
  storages_.Hold(run);
  storages_.LetGo(run);
  EXPECT_THAT(Freed(), IsEmpty());
  storages_.LetGo(run);
  EXPECT_THAT(Freed(), ElementsAre("0:1", "1:1"));
  EXPECT_EQ(storages_.size(), 0u);
}

TEST_F(StoragesTest, WhatIsTakenIsFreedAlthoughAnArrayHoldsIt_OB1) {
  const controller::Run run = Have({0, 1, 2});
  storages_.Hold(run);
  storages_.Take({run.storage, 1, 1});
  EXPECT_THAT(Freed(), ElementsAre("0:1:1+1"));
  EXPECT_TRUE(storages_.AnyGone(run));
  EXPECT_FALSE(storages_.AnyGone({run.storage, 2, 1}));
  EXPECT_EQ(storages_.FirstGood({run.storage, 1, 2}), 2u);
}

TEST_F(StoragesTest, ASplitRunIsLetGoShardByShard_OB1) {
  const controller::Run run = Have({0, 1, 2});
  std::vector<controller::Run> single;
  storages_.Split(run, single);
  ASSERT_EQ(single.size(), 3u);
  EXPECT_THAT(Freed(), IsEmpty());
  storages_.LetGo(single[1]);
  EXPECT_THAT(Freed(), ElementsAre("0:1:1+1"));
  EXPECT_EQ(storages_.size(), 1u);
}

TEST_F(StoragesTest, AWorkerTakesItsShardsWithItAndNoOthers_ER1) {
  const controller::Run spread = Have({6, 0, 4}), elsewhere = Have({2, 3});
  Lose(0, "worker 0 is gone");
  EXPECT_EQ(MessageOf(spread), "worker 0 is gone");
  EXPECT_EQ(MessageOf({spread.storage, 0, 1}), "");
  EXPECT_EQ(MessageOf({spread.storage, 2, 1}), "");
  EXPECT_EQ(MessageOf(elsewhere), "");
  EXPECT_EQ(storages_.FirstGood(spread), 0u);
  EXPECT_EQ(storages_.FirstGood({spread.storage, 1, 2}), 2u);
  Lose(3, "worker 3 is gone");
  EXPECT_EQ(MessageOf(spread), "worker 3 is gone") << "of the first shard";
  Lose(0, "its next process is gone");
  EXPECT_EQ(MessageOf({spread.storage, 1, 1}), "worker 0 is gone") << "the first loss counts";
}

TEST_F(StoragesTest, TheSchedulerDecidesAboutWhatIsPendingThere) {
  const controller::Run pending = Have({0}, Ordinal(5)), settled = Have({0});
  Lose(0, "worker 0 is gone", kPending);
  EXPECT_EQ(MessageOf(pending), "");
  EXPECT_EQ(MessageOf(settled), "worker 0 is gone");
}

TEST_F(StoragesTest, AnAwaitHearsOfItsShardsOnceTheProducerHasEnded) {
  const controller::Run run = Have({0, 2}, Ordinal(5));
  EXPECT_TRUE(storages_.Wait({run.storage, 0, 1}, {SessionId(1), AwaitId(10), 0}));
  EXPECT_TRUE(storages_.Wait({run.storage, 1, 1}, {SessionId(1), AwaitId(11), 0}));
  Lose(1, "worker 1 is gone");
  EXPECT_EQ(storages_.ProducerOf(run.storage), Ordinal(5));
  const std::vector<Storages::Settled> settled = storages_.Settle(run.storage);
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].failure, nullptr);
  EXPECT_EQ(settled[1].failure->message(), "worker 1 is gone");
  EXPECT_FALSE(storages_.Wait(run, {SessionId(1), AwaitId(12), 0})) << "it is settled";
  EXPECT_EQ(storages_.ProducerOf(run.storage), Ordinal());
}

TEST_F(StoragesTest, AnAwaitKeepsAStorageThatNoArrayHolds) {
  const controller::Run run = Have({0}, Ordinal(5));
  EXPECT_TRUE(storages_.Wait(run, {SessionId(1), AwaitId(10), 0}));
  storages_.LetGo(run);
  EXPECT_EQ(storages_.size(), 1u);
  EXPECT_EQ(storages_.Settle(run.storage).size(), 1u);
  EXPECT_EQ(storages_.size(), 0u);
  EXPECT_THAT(storages_.Settle(run.storage), IsEmpty()) << "it is gone already";
}

TEST_F(StoragesTest, TheFirstFailureOfAllShardsCounts_ER1) {
  const controller::Run run = Have({0, 2});
  storages_.Spoil(run.storage, SomeFailure("first"));
  storages_.Spoil(run.storage, SomeFailure("second"));
  Lose(0, "worker 0 is gone");
  EXPECT_EQ(MessageOf(run), "first");
  EXPECT_EQ(storages_.FirstGood(run), std::nullopt);
}

TEST_F(StoragesTest, OnlyWhatIsThereCountsAsMemory) {
  const controller::Run run = Have({0, 1, 2, 4});
  EXPECT_EQ(storages_.BytesBySession().at(SessionId(1)), 32u);
  storages_.Take({run.storage, 0, 1});
  Lose(0, "worker 0 is gone");
  EXPECT_EQ(storages_.BytesBySession().at(SessionId(1)), 16u) << "shard 0 counts once";
}

}  // namespace
}  // namespace gangway::controller
