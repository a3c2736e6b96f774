// Tests of local_storages.h.
#include "gangway/worker/service/memory/local_storages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/device/sim/sim_backend.h"
#include "gangway/wire/failure.h"
#include "gangway/worker/service/device/node_task_test_util.h"

namespace gangway::worker {
namespace {

using ::testing::HasSubstr;

constexpr StorageId kStorage(3);

// Two devices; the storage's shards 4 and 7 are on them, 4 bytes each.
class LocalStoragesTest : public testing::Test {
 protected:
  LocalStoragesTest() {
    CreateStorage create{.storage = kStorage,
                         .session = SessionId(1),
                         .element_type = device::kF32,
                         .dims = {1},
                         .shard_bytes = 4,
                         .memory_kind = "pinned",
                         .shards = {{.shard = 4, .device = 0}, {.shard = 7, .device = 1}},
                         .held = held_};
    storages_.Create(create);
    for (int device = 0; device < 2; ++device) {
      environment_.devices.push_back(
          std::make_shared<DeviceThread>("device", 1, std::chrono::minutes(10)));
    }
  }
  ~LocalStoragesTest() override {
    for (const auto& thread : environment_.devices)
      EXPECT_TRUE(thread->Stop(Clock::now() + std::chrono::seconds(5)));
  }
  ShardKey Key(uint32_t shard) const { return {kStorage, shard, held_}; }
  void Fill() {
    storages_.Find(Key(4), 0)->Fill(FloatsOn(*backend_, 0, {1}), store::Sharing::kOwned);
    storages_.Find(Key(7), 1)->Fill(FloatsOn(*backend_, 1, {2}), store::Sharing::kOwned);
  }
  uint64_t BytesOn(int device) const { return storages_.ledger().Device(device).current; }

  const std::unique_ptr<device::SimBackend> backend_ = device::OpenSim({.device_count = 2});
  const LocalStorages storages_{{.name = "island0/worker1", .device_count = 2}, nullptr};
  const Held<HeldShards> held_ = Held<HeldShards>::New();
  TaskEnvironment environment_;
};

TEST_F(LocalStoragesTest, SlotsAreFoundByTheirShards) {
  const auto slots = storages_.FindAll({Key(7), Key(4)}, 1);
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0], storages_.Find(Key(7), 1));
  EXPECT_EQ(slots[0]->name().shard, 7u);
  EXPECT_EQ(slots[0]->name().device, 1);
  EXPECT_EQ(slots[0]->name().session, SessionId(1));
  EXPECT_EQ(slots[1]->name().shard, 4u);
  EXPECT_EQ(slots[1]->name().device, 0);
  EXPECT_FALSE(slots[0]->settled());
  EXPECT_EQ(held_.get()->spec, (device::ArraySpec{device::kF32, {1}}));
  EXPECT_EQ(held_.get()->memory_kind, "pinned");
}

TEST_F(LocalStoragesTest, AShardThatIsNotHereIsAFailedSlotThatNamesIt) {
  for (const ShardKey& key : {Key(5), ShardKey{StorageId(9), 5, {}}}) {
    const auto failure = storages_.Find(key, 1)->failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(wire::ToStatus(*failure).code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(failure->message(), HasSubstr(absl::StrCat("shard 5 of storage ", key.storage)));
    EXPECT_THAT(failure->message(), HasSubstr("not held by island0/worker1"));
  }
}

TEST_F(LocalStoragesTest, ADroppedStorageFreesItsMemoryThoughItsSlotsAreKept_OB1) {
  Fill();
  const auto kept = storages_.FindAll({Key(4), Key(7)}, 0);
  EXPECT_EQ(BytesOn(0), 4u);
  EXPECT_EQ(BytesOn(1), 4u);
  LocalStorages::Drop(DropStorage{kStorage, held_});
  EXPECT_EQ(BytesOn(0), 0u);
  EXPECT_EQ(BytesOn(1), 0u);
  EXPECT_EQ(held_.get(), nullptr);
  LocalStorages::Drop(DropStorage{kStorage, held_});  // again: nothing is left
}

TEST_F(LocalStoragesTest, ShardsAreFreedOneByOne_OB1) {
  Fill();
  LocalStorages::Drop(DropShards{kStorage, held_, {2, 7}});
  EXPECT_EQ(BytesOn(0), 4u);
  EXPECT_EQ(BytesOn(1), 0u);
  EXPECT_FALSE(storages_.Find(Key(4), 0)->failure().has_value());
  EXPECT_TRUE(storages_.Find(Key(7), 1)->failure().has_value());
}

TEST_F(LocalStoragesTest, AllShardsOfAPoisonedStorageFailTogether_ER1) {
  Fill();
  const wire::Failure why = wire::MakeFailure(absl::StatusCode::kInternal, "the root cause");
  LocalStorages::Poison({kStorage, held_, why}, environment_);
  for (const uint32_t shard : {4, 7}) {
    const auto failure = storages_.Find(Key(shard), 0)->failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->message(), "the root cause");
  }
  LocalStorages::Drop(DropStorage{kStorage, held_});
  LocalStorages::Poison({kStorage, held_, why}, environment_);  // of nothing that is left
}

}  // namespace
}  // namespace gangway::worker
