// Unit tests of session_arrays.h.
#include "gangway/controller/core/session_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gangway/controller/core/room_test_util.h"

namespace gangway::controller {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SessionArraysTest : public testing::Test {
 protected:
  void Have(uint64_t handle, const Devices& devices, int32_t element_type = 11) {
    Array array;
    array.shape = std::make_shared<ArrayShape>(ArrayShape{.element_type = element_type});
    array.devices = fleet_.ListOf(devices);
    const StorageId storage = storages_.Add(SessionId(1), array.devices, 8, {});
    array.runs = {{storage, 0, static_cast<uint32_t>(devices.size())}};
    arrays_.Bind(ArrayHandle(handle), std::move(array));
  }
  void Regroup(uint64_t handle, const std::vector<std::pair<uint64_t, uint32_t>>& shards) {
    wire::RegroupOp op;
    wire::RegroupOp::Result* result = op.add_results();
    result->set_array(handle);
    for (const auto& [array, shard] : shards) {
      wire::RegroupOp::Shard* out = result->add_shards();
      out->set_array(array);
      out->set_shard(shard);
    }
    arrays_.OnRegroup(op);
  }
  void Drop(uint64_t handle, DropMode mode = DropMode::kLetGo) {
    wire::DropOp op;
    op.add_handles(handle);
    arrays_.OnDrop(op, mode);
  }
  std::string MessageOf(uint64_t handle) const {
    const wire::FailureRef failure = arrays_.CheckUsable(ArrayHandle(handle));
    return failure ? failure->message() : "";
  }
  std::vector<std::string> Freed() { return FreesIn(outbox_.Take()); }

  Fleet fleet_{FourWorkers()};
  Outbox outbox_{2, {}, std::chrono::milliseconds(1000)};
  Storages storages_{fleet_.lists(), outbox_};
  SessionArrays arrays_{fleet_, storages_};
};

TEST_F(SessionArraysTest, AHandleInUseKeepsItsArrayAndTheOtherIsFreed) {
  Have(1, {0});
  EXPECT_FALSE(arrays_.CanBind(ArrayHandle(1)));
  EXPECT_FALSE(arrays_.CanBind(ArrayHandle(0)));
  Have(1, {4});
  EXPECT_THAT(Freed(), ElementsAre("1:2"));
  EXPECT_EQ(arrays_.Find(ArrayHandle(1))->devices, fleet_.ListOf(Devices{0}));
  EXPECT_THAT(MessageOf(2), HasSubstr("is not known in this session"));
}

TEST_F(SessionArraysTest, AViewHoldsTheNamedShardsOfItsSources_OB1) {
  Have(1, {0, 1, 2});
  Have(2, {4});
  Regroup(3, {{1, 1}, {1, 2}, {2, 0}});
  const Array& view = *arrays_.Find(ArrayHandle(3));
  EXPECT_EQ(view.devices, fleet_.ListOf(Devices{1, 2, 4}));
  ASSERT_EQ(view.runs.size(), 2u);
  EXPECT_EQ(view.runs[0].range(), (ShardRange{1, 2}));
  EXPECT_EQ(view.runs[1].position, 2u);
  EXPECT_EQ(view.shape, arrays_.Find(ArrayHandle(1))->shape) << "shapes are shared";
  Drop(1);
  EXPECT_THAT(Freed(), ElementsAre("0:1:0+1"));
  EXPECT_EQ(MessageOf(3), "");
}

TEST_F(SessionArraysTest, WhatCannotBeAViewIsAnErrorWithItsReason) {
  Have(1, {0, 1});
  Have(2, {0}, /*element_type=*/5);
  Regroup(3, {{1, 0}, {1, 0}});
  EXPECT_THAT(MessageOf(3), HasSubstr("two shards on device 0"));
  Regroup(4, {{1, 1}, {2, 0}});
  EXPECT_THAT(MessageOf(4), HasSubstr("the same type and shape"));
  Regroup(5, {{1, 2}});
  EXPECT_THAT(MessageOf(5), HasSubstr("array 1 has 2 shards, shard 2 was requested"));
  Regroup(6, {});
  EXPECT_THAT(MessageOf(6), HasSubstr("at least one shard"));
}

TEST_F(SessionArraysTest, TakenShardsAreGoneForAllViewsOfThem_OB1) {
  Have(1, {0, 1});
  Regroup(2, {{1, 1}});
  Drop(1, DropMode::kTake);
  EXPECT_THAT(Freed(), ElementsAre("0:1"));
  EXPECT_THAT(MessageOf(2), HasSubstr("deleted or donated (handle 2)"));
}

TEST_F(SessionArraysTest, AnArrayLivesOnWithoutTheShardsThatItDropped_OB1) {
  Have(1, {0, 1, 2});
  Regroup(2, {{1, 1}});
  wire::DropShardsOp op;
  op.add_arrays()->set_array(1);
  for (const uint32_t shard : {0, 1, 9}) op.mutable_arrays(0)->add_shards(shard);
  arrays_.OnDropShards(op, DropMode::kLetGo);
  EXPECT_THAT(Freed(), ElementsAre("0:1:0+1")) << "the view holds shard 1";
  EXPECT_THAT(MessageOf(1), HasSubstr("deleted or donated"));
  EXPECT_EQ(MessageOf(2), "");
  Regroup(3, {{1, 2}});
  EXPECT_EQ(MessageOf(3), "");
}

TEST_F(SessionArraysTest, AReplicaIsTheFirstGoodShard) {
  Have(1, {0, 2, 4});
  storages_.Lose(0, SomeFailure("worker 0 is gone"), [](Ordinal) { return false; });
  wire::RegroupOp op;
  op.add_results()->set_array(2);
  op.mutable_results(0)->set_replica_of(1);
  arrays_.OnRegroup(op);
  EXPECT_EQ(arrays_.Find(ArrayHandle(2))->devices, fleet_.ListOf(Devices{2}));
}

TEST_F(SessionArraysTest, AReplicaOfAnArrayWhoseShardsWereDroppedIsRefused_OB1) {
  Have(1, {0});
  Have(2, {2});
  Regroup(3, {{1, 0}, {2, 0}});
  const auto drop_first = [this](uint64_t handle) {
    wire::DropShardsOp op;
    op.add_arrays()->set_array(handle);
    op.mutable_arrays(0)->add_shards(0);
    arrays_.OnDropShards(op, DropMode::kLetGo);
  };
  const auto replica = [this](uint64_t handle, uint64_t of) {
    wire::RegroupOp op;
    op.add_results()->set_array(handle);
    op.mutable_results(0)->set_replica_of(of);
    arrays_.OnRegroup(op);
  };
  drop_first(3);
  drop_first(1);  // nothing holds its storage any more
  replica(10, 1);
  EXPECT_THAT(MessageOf(10), HasSubstr("deleted or donated (handle 1)"));
  replica(11, 3);
  EXPECT_EQ(arrays_.Find(ArrayHandle(11))->devices, fleet_.ListOf(Devices{2}));
}

TEST_F(SessionArraysTest, AFetchMayNameAShardTwiceAndArraysThatDiffer) {
  Have(1, {0, 1});
  Have(2, {4}, /*element_type=*/5);
  wire::FetchOp op;
  for (const auto& [array, shard] : {std::pair(1, 1), {1, 1}, {2, 0}}) {
    op.add_arrays(static_cast<uint64_t>(array));
    op.add_shards(static_cast<uint32_t>(shard));
  }
  NamedShards view;
  EXPECT_EQ(arrays_.FindWanted(op, view), nullptr);
  EXPECT_THAT(view.devices, ElementsAre(1, 1, 4));
  EXPECT_EQ(view.runs.size(), 3u);
}

TEST_F(SessionArraysTest, ClosingDropsAllInTheOrderOfTheirHandles_OB2) {
  for (const uint64_t handle : {9, 7, 8}) Have(handle, {0});
  wire::PoisonOp poison;
  poison.add_arrays(6);
  arrays_.OnPoison(poison);
  EXPECT_THAT(MessageOf(6), HasSubstr("without a reason"));
  arrays_.Close();
  EXPECT_THAT(Freed(), ElementsAre("0:2", "0:3", "0:1"));
  EXPECT_EQ(arrays_.size(), 0u);
  EXPECT_EQ(storages_.size(), 0u);
}

}  // namespace
}  // namespace gangway::controller
