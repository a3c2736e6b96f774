// Which nodes may have memory, slots and workers, and which come first.
#include "gangway/scheduler/core/admission.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"

namespace gangway::scheduler {
namespace {

class AdmissionTest : public ::testing::Test {
 protected:
  NodeState Launch(uint64_t ordinal, const std::vector<uint32_t>& devices, uint64_t bytes = 0) {
    NodeState node = LaunchNode(ordinal, devices, two_);
    node.result_bytes = bytes;
    node.stage = NodeStage::kReady;
    return node;
  }
  NodeState Alone(uint64_t ordinal, const std::vector<uint32_t>& devices) {
    NodeState node = Launch(ordinal, devices);
    node.launch()->alone = true;
    return node;
  }

  TwoWorkerFleet two_;
  Books books_{4, 100};
  Admission admission_{two_.fleet, books_, /*window=*/1};
};

// GS-2.
TEST_F(AdmissionTest, MemoryIsHeldOnEachDevice) {
  const NodeState first = Launch(1, {0, 2}, 60), second = Launch(2, {1, 2}, 60);
  EXPECT_TRUE(admission_.HasMemory(first));
  admission_.Take(first);
  EXPECT_EQ(books_.ledger().used_bytes(IslandDevice(2)), 60u);
  EXPECT_FALSE(admission_.HasMemory(second));
  EXPECT_TRUE(admission_.HasMemory(Launch(3, {1, 2}, 40)));
}

TEST_F(AdmissionTest, WhatStandsAsideIsReadyAgainWhenItFits) {
  const NodeState first = Launch(1, {0}, 60), second = Launch(2, {0}, 60);
  admission_.Take(first);
  admission_.AddReady(second);
  admission_.StandAside(second);
  EXPECT_EQ(admission_.NextHead(Ordinal()), std::nullopt);
  EXPECT_FALSE(admission_.may_resume());
  books_.Credit(SessionId(7), first.devices(), 60);
  EXPECT_TRUE(admission_.may_resume());
  admission_.ResumeFitting();
  EXPECT_EQ(admission_.NextHead(Ordinal()), Ordinal(2));
  admission_.Remove(second);
  EXPECT_EQ(admission_.NextHead(Ordinal()), std::nullopt);
}

TEST_F(AdmissionTest, SlotsComeBackWithTheWorkersPart) {
  const NodeState gang = Launch(1, {0, 1, 2}), behind = Launch(2, {1, 2});
  admission_.Take(gang);
  EXPECT_TRUE(admission_.IsFull(IslandDevice(2)));
  EXPECT_FALSE(admission_.HasSlots(behind));  // waits for device 2, the last of them
  admission_.ReturnWorker(0, gang);
  EXPECT_FALSE(admission_.TakeWoken());
  EXPECT_EQ(admission_.SlotsTaken(IslandDevice(1)), 0u);
  admission_.ReturnWorker(1, gang);
  EXPECT_TRUE(admission_.TakeWoken());
  EXPECT_FALSE(admission_.TakeWoken());
  EXPECT_TRUE(admission_.HasSlots(behind));
}

TEST_F(AdmissionTest, ALaunchThatRunsAloneHasItsWorkersForItself) {
  const NodeState alone = Alone(1, {0}), other = Launch(2, {1}), elsewhere = Launch(3, {2});
  KeptDevices kept(4);
  admission_.Keep(alone, kept);
  EXPECT_TRUE(kept.HasOneOf(other.devices()));
  EXPECT_FALSE(kept.HasOneOf(elsewhere.devices()));
  admission_.Take(alone);
  EXPECT_FALSE(admission_.HasSlots(other));
  EXPECT_TRUE(admission_.HasSlots(elsewhere));
  admission_.ReturnWorker(0, alone);
  EXPECT_TRUE(admission_.TakeWoken());
  EXPECT_TRUE(admission_.HasSlots(other));
}

TEST_F(AdmissionTest, NothingRunsAloneBesideAHostCallback) {
  NodeState caller = Launch(1, {0});
  caller.launch()->calls_host = true;
  admission_.Take(caller);
  EXPECT_TRUE(admission_.HasSlots(Alone(2, {1})));
  admission_.ReturnWorker(0, caller);
  admission_.Take(Launch(3, {0}));
  EXPECT_FALSE(admission_.HasSlots(Alone(2, {1})));
}

TEST_F(AdmissionTest, AGangOnItsTurnDoesNotWaitBehindThoseThatStandAside) {
  const NodeState old = Launch(1, {0}, 100);
  admission_.Take(Launch(2, {0}, 10));
  admission_.StandAside(old);
  NodeState young = Launch(5, {0}, 1);
  for (int i = 0; i < MemoryQueue::kOvertakenMax; ++i) admission_.Take(Launch(6, {0}, 0));
  EXPECT_TRUE(admission_.HasMemory(young));  // those took no memory
  for (int i = 0; i < MemoryQueue::kOvertakenMax; ++i) {
    admission_.Take(young);
    books_.Credit(SessionId(7), young.devices(), 1);
  }
  EXPECT_FALSE(admission_.HasMemory(young));
  young.stage = NodeStage::kOnTurn;
  EXPECT_TRUE(admission_.HasMemory(young));
}

TEST_F(AdmissionTest, TurnsAreServedInOrder) {
  admission_.AddTurn(Ordinal(8));
  admission_.AddTurn(Ordinal(3));
  EXPECT_EQ(admission_.Turns(), (std::vector{Ordinal(3), Ordinal(8)}));
  admission_.Remove(Launch(3, {0}));
  EXPECT_EQ(admission_.Turns(), std::vector{Ordinal(8)});
}

TEST_F(AdmissionTest, WhatNeedsNothingHasALineOfItsOwn) {
  const NodeState light = Launch(4, {}), heavy = Launch(2, {0});
  admission_.AddReady(light);
  admission_.AddReady(heavy);
  EXPECT_EQ(admission_.NextLight(), Ordinal(4));
  EXPECT_EQ(admission_.NextHead(Ordinal()), Ordinal(2));
  admission_.Remove(light);
  EXPECT_EQ(admission_.NextLight(), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
