// OpBatches: which frame takes an operation, and which operation others may still join.
#include "gangway/client/op_batches.h"

#include <gtest/gtest.h>

#include <vector>

namespace gangway::client {
namespace {

TEST(OpBatchesTest, OperationsFollowAFrameOfItsOwn) {
  OpBatches batches;
  wire::Frame hello;
  hello.mutable_hello()->set_name("a");
  batches.Add(hello);
  EXPECT_EQ(batches.LastOp(), nullptr);
  EXPECT_FALSE(batches.empty());
  wire::Op* const op = batches.AddOp();
  EXPECT_EQ(batches.LastOp(), op);
  std::vector<wire::Frame> frames;
  batches.TakeInto(frames);
  EXPECT_TRUE(batches.empty());
  EXPECT_EQ(batches.LastOp(), nullptr) << "a frame has taken it";
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].hello().name(), "a");
  EXPECT_EQ(frames[1].session_batch().ops_size(), 1);
}

TEST(OpBatchesTest, AFrameHasAsManyOperationsAsFit) {
  OpBatches batches;
  EXPECT_FALSE(batches.HasBurst());
  for (int i = 0; i < OpBatches::kBurstOps; ++i) {
    EXPECT_FALSE(batches.HasBurst());
    batches.AddOp();
  }
  EXPECT_TRUE(batches.HasBurst());
  for (int i = OpBatches::kBurstOps; i <= OpBatches::kFrameOpsMax; ++i) batches.AddOp();
  EXPECT_TRUE(batches.HasBurst()) << "the frame that is full waits for nothing";
  std::vector<wire::Frame> frames(1);
  batches.TakeInto(frames);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].session_batch().ops_size(), OpBatches::kFrameOpsMax);
  EXPECT_EQ(frames[1].session_batch().ops_size(), 1);
  batches.AddOp();
  batches.Clear();
  EXPECT_TRUE(batches.empty());
}

}  // namespace
}  // namespace gangway::client
