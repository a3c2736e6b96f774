// What is lost with a worker: its shards, and no others.
#include <gmock/gmock.h>

#include "gangway/scheduler/core/island_test_util.h"

namespace gangway::scheduler {
namespace {

class LossTest : public IslandTest {
 protected:
  // Storage 50 has a shard on each device.
  void SetUp() override {
    Make(/*budget_bytes=*/100);
    Have(50, {0, 1, 2, 3});
    Load(1, {0, 1});
    Load(2, {2, 3});
  }
  void LaunchOn(uint64_t ordinal, uint64_t executable, uint32_t first, uint64_t result) {
    wire::IslandItem item = NodeItem(ordinal);
    wire::Launch* launch = item.mutable_node()->mutable_launch();
    launch->set_executable(executable);
    Refer(launch->add_arguments(), 50, 2, first);
    launch->add_results(result);
    Item(item);
  }
};

TEST_F(LossTest, ShardsOnOtherWorkersStay_OB1_ER1) {
  Down(1);
  EXPECT_EQ(SentFrees(0, 50), 0) << "worker 0 keeps its shards";
  EXPECT_EQ(Used(0), 16u);
  EXPECT_EQ(Used(2), 0u) << "what is gone is not counted";
  LaunchOn(10, 1, 0, 60);
  EXPECT_EQ(TakeReleased(), Ordinals{10});
  Done(0, 10);
  EXPECT_EQ(done_.at(10).code(), 0);
  Up(1, 22);
  LaunchOn(11, 2, 2, 61);
  EXPECT_EQ(done_.at(11).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(done_.at(11).worker(), "island0/worker1");
  Fetch(12, 50, {0, 1});
  EXPECT_EQ(TakeReleased(), Ordinals{12});
  Fetch(13, 50, {0, 1, 2});
  EXPECT_EQ(done_.at(13).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Copy(14, 50, {3}, 62, {0});  // names the first shard of its source, on the device given
  EXPECT_EQ(done_.at(14).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Done(0, 12);
  Free({50, 60, 61, 62});
  ExpectEmpty();
}

TEST_F(LossTest, WhatWaitsForTheWorkersReturnFailsIfItReadsWhatIsGone) {
  Down(1);
  LaunchOn(10, 2, 2, 60);  // reads what is gone
  EXPECT_EQ(done_.at(10).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Have(51, {0, 1});
  Copy(11, 51, {0, 1}, 61, {2, 3});  // waits
  EXPECT_FALSE(done_.contains(11));
  Down(0);
  EXPECT_EQ(done_.at(11).worker(), "island0/worker0");
  Free({50, 51, 60, 61});
  ExpectEmpty();
}

TEST_F(LossTest, MemoryOfALostShardInUseIsFreeOnceItsReadersHaveEnded) {
  wire::IslandItem item = NodeItem(10);
  wire::Fetch* fetch = item.mutable_node()->mutable_fetch();
  Refer(fetch->mutable_source(), 50, 4);
  *fetch->mutable_devices() = Spec({0, 1, 2, 3}).devices();
  Item(item);
  Down(1);  // the fetch has failed, but worker 0 is still at it
  EXPECT_EQ(Used(2), 16u);
  Done(0, 10);
  EXPECT_EQ(Used(2), 0u);
  EXPECT_EQ(Used(0), 16u);
  Down(0);
  EXPECT_EQ(Used(0), 0u);
  Free({50});
  ExpectEmpty();
}

TEST_F(LossTest, AResultThatWasNotReadyFailsAsAWhole_ER2) {
  Upload(10, 51, {0, 1, 2, 3});
  Done(0, 10);
  Done(1, 10);
  Upload(11, 52, {0, 1, 2, 3});
  Done(0, 11);
  Down(1);
  EXPECT_EQ(done_.at(10).code(), 0);
  EXPECT_EQ(done_.at(11).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  Fetch(12, 51, {0});
  EXPECT_EQ(TakeReleased(), (Ordinals{10, 10, 11, 11, 12}));
  Fetch(13, 52, {0});
  EXPECT_EQ(done_.at(13).code(), static_cast<int>(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace gangway::scheduler
