// Which nodes block which others, and which are held back.
#include "gangway/scheduler/core/nodes.h"

#include <gtest/gtest.h>

#include "gangway/scheduler/core/core_test_util.h"
#include "gangway/scheduler/core/held_back.h"

namespace gangway::scheduler {
namespace {

NodeState UploadNode(uint64_t ordinal) {
  NodeState node;
  node.ordinal = Ordinal(ordinal);
  node.part.emplace<UploadPart>();
  return node;
}

TEST(NodesTest, ANodeWaitsForAProducerThatIsNotReleased) {
  const TwoWorkerFleet two;
  Nodes nodes;
  nodes.Add(LaunchNode(1, {0}, two));
  NodeState reader = LaunchNode(2, {0}, two);
  nodes.Block(reader, Ordinal(1));
  nodes.Block(reader, Ordinal(9));  // not known
  EXPECT_EQ(reader.blockers, 1u);
  nodes.Add(std::move(reader));
  EXPECT_EQ(nodes.At(Ordinal(1)).waiters, std::vector{Ordinal(2)});
  EXPECT_EQ(nodes.latest(), Ordinal(2));
  const NodeState* unblocked = nodes.Unblock(Ordinal(2));
  ASSERT_NE(unblocked, nullptr);
  EXPECT_EQ(unblocked->blockers, 0u);
  EXPECT_EQ(nodes.Unblock(Ordinal(2)), nullptr);  // it waits for nothing
  EXPECT_EQ(nodes.Unblock(Ordinal(9)), nullptr);
}

// GS-4.
TEST(NodesTest, OnlyAnUploadBlocksBeyondItsRelease) {
  const TwoWorkerFleet two;
  Nodes nodes;
  nodes.Add(LaunchNode(1, {0}, two)).stage = NodeStage::kReleased;
  nodes.Add(UploadNode(2)).stage = NodeStage::kReleased;
  NodeState reader = LaunchNode(3, {0}, two);
  nodes.Block(reader, Ordinal(1));
  EXPECT_EQ(reader.blockers, 0u);
  nodes.Block(reader, Ordinal(2));
  EXPECT_EQ(reader.blockers, 1u);
}

TEST(NodesTest, TheBooksHoldWhatAdmittedNodesTook) {
  const TwoWorkerFleet two;
  Nodes nodes;
  for (uint64_t ordinal : {1, 2}) {
    NodeState& node = nodes.Add(LaunchNode(ordinal, {0, 2}, two));
    node.temp_bytes = 40;
    node.alias_bytes = 8;
    node.stage = ordinal == 1 ? NodeStage::kAdmitted : NodeStage::kReady;
  }
  Ledger::DeviceBytes books(4, 0), others(4, 0);
  nodes.Count(SessionId(7), books);
  nodes.Count(SessionId(8), others);
  EXPECT_EQ(books, (Ledger::DeviceBytes{32, 0, 32, 0}));
  EXPECT_EQ(others, Ledger::DeviceBytes(4, 0));
}

TEST(HeldBackTest, ReadersOfAStorageAreKnownUntilTheyGo) {
  const TwoWorkerFleet two;
  HeldBack held;
  NodeState first = LaunchNode(3, {0}, two), second = LaunchNode(5, {0}, two);
  first.reads = second.reads = {StorageId(50)};
  held.Add(first);
  held.Add(second);
  EXPECT_TRUE(held.Contains(Ordinal(3)));
  EXPECT_TRUE(held.IsReadBefore(StorageId(50), Ordinal(4)));
  EXPECT_FALSE(held.IsReadBefore(StorageId(50), Ordinal(3)));
  EXPECT_FALSE(held.IsReadBefore(StorageId(51), Ordinal(4)));
  EXPECT_TRUE(held.Remove(first));
  EXPECT_FALSE(held.Remove(first));
  EXPECT_FALSE(held.IsReadBefore(StorageId(50), Ordinal(5)));
  EXPECT_TRUE(held.IsReadBefore(StorageId(50), Ordinal(6)));
}

TEST(HeldBackTest, ALossIsOnlyLookedAtIfSomethingIsHeldBack) {
  const TwoWorkerFleet two;
  HeldBack held;
  held.LookAgain();
  EXPECT_FALSE(held.must_look());
  held.Add(LaunchNode(3, {0}, two));
  held.LookAgain();
  EXPECT_TRUE(held.must_look());
  held.NoteLooked();
  EXPECT_FALSE(held.must_look());
}

}  // namespace
}  // namespace gangway::scheduler
