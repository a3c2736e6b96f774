// Tests of incoming_batch.h.
#include "gangway/transport/bulk/incoming_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gangway::transport {
namespace {

using ::testing::ElementsAre;

class IncomingBatchTest : public testing::Test {
 protected:
  absl::Status Take(IncomingBatch& batch, ShardPiece piece, std::string_view bytes) {
    piece.size = bytes.size();
    return batch.Take(piece, bytes, [this](uint64_t size) {
      charged_.push_back(size);
      return charge_;
    });
  }
  static std::vector<std::string> Contents(IncomingBatch& batch) {
    std::vector<std::string> contents;
    for (const IncomingBatch::Bytes& each : batch.TakeBytes())
      contents.emplace_back(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
    return contents;
  }
  std::shared_ptr<SharedBlock> Block(std::string_view written) {
    std::shared_ptr<SharedBlock> block = pool_->Allocate(written.size());
    std::memcpy(block->writable(), written.data(), written.size());
    return block;
  }

  const std::shared_ptr<SharedPool> pool_ =
      SharedPool::Make({.bytes_max = size_t{1} << 30, .writable = true});
  absl::Status charge_;
  std::vector<uint64_t> charged_;
};

TEST_F(IncomingBatchTest, PiecesAreCutIntoShardsWhereverTheyEnd) {
  IncomingBatch batch({3, 0, 5, 1});
  ASSERT_TRUE(Take(batch, {.total = 9}, "ab").ok());
  EXPECT_TRUE(batch.begun());
  ASSERT_TRUE(Take(batch, {.offset = 2}, "cdef").ok());
  EXPECT_FALSE(batch.complete());
  ASSERT_TRUE(Take(batch, {.offset = 6, .last = true}, "ghi").ok());
  EXPECT_TRUE(batch.complete());
  EXPECT_THAT(charged_, ElementsAre(9u)) << "once, all of it";
  EXPECT_THAT(Contents(batch), ElementsAre("abc", "", "defgh", "i"));
}

TEST_F(IncomingBatchTest, OneShardOfNoBytesIsOnePiece) {
  IncomingBatch batch({0});
  EXPECT_FALSE(batch.complete());
  ASSERT_TRUE(Take(batch, {.last = true}, "").ok());
  EXPECT_TRUE(batch.complete());
  EXPECT_THAT(Contents(batch), ElementsAre(""));
}

TEST_F(IncomingBatchTest, ShardsInBlocksComeFirstAndTheOthersFollow) {
  IncomingBatch batch({2, 4, 3});
  batch.Lend(1, Block("BBBB"));
  ASSERT_TRUE(batch.Place().ok());
  EXPECT_TRUE(batch.begun());
  EXPECT_FALSE(batch.complete());
  EXPECT_EQ(batch.placed_bytes(), 4u);
  EXPECT_FALSE(batch.Place().ok()) << "twice";
  EXPECT_FALSE(Take(batch, {.total = 9}, "x").ok()) << "the size of all, one of which is there";
  ASSERT_TRUE(Take(batch, {.total = 5, .last = true}, "aaccc").ok());
  EXPECT_THAT(charged_, ElementsAre(5u));
  EXPECT_THAT(Contents(batch), ElementsAre("aa", "BBBB", "ccc"));
}

TEST_F(IncomingBatchTest, IfAllAreInBlocksNothingFollows) {
  IncomingBatch batch({2, 1});
  EXPECT_FALSE(batch.Place().ok()) << "they have no blocks";
  batch.Lend(0, Block("aa"));
  batch.Lend(1, Block("b"));
  ASSERT_TRUE(batch.Place().ok());
  EXPECT_TRUE(batch.complete());
  EXPECT_FALSE(Take(batch, {.last = true}, "").ok());
  EXPECT_TRUE(charged_.empty());
  EXPECT_THAT(Contents(batch), ElementsAre("aa", "b"));
}

TEST_F(IncomingBatchTest, APieceBeforeThemMeansThatNoBlockIsWritten_OB3) {
  IncomingBatch batch({2, 1});
  std::shared_ptr<SharedBlock> block = Block("xx");
  const uint64_t segment = block->segment();
  batch.Lend(0, std::move(block));
  ASSERT_TRUE(Take(batch, {.total = 3}, "aa").ok());
  EXPECT_EQ(pool_->Allocate(2)->segment(), segment) << "it may be used again";
  EXPECT_FALSE(batch.Place().ok());
  ASSERT_TRUE(Take(batch, {.offset = 2, .last = true}, "b").ok());
  EXPECT_THAT(Contents(batch), ElementsAre("aa", "b"));
}

TEST_F(IncomingBatchTest, ABlockThatMayStillBeWrittenIsRetired_OB3) {
  uint64_t segment = 0;
  {
    IncomingBatch batch({2});
    std::shared_ptr<SharedBlock> block = Block("xx");
    segment = block->segment();
    batch.Lend(0, std::move(block));
  }
  EXPECT_NE(pool_->Allocate(2)->segment(), segment);
}

TEST_F(IncomingBatchTest, EachShardIsFreedAlone_OB1) {
  IncomingBatch batch({2, 2});
  for (size_t shard : {0, 1}) batch.Lend(shard, Block("xx"));
  ASSERT_TRUE(batch.Place().ok());
  std::vector<IncomingBatch::Bytes> shards = batch.TakeBytes();
  const std::byte* const freed = shards[0].bytes.data();
  shards[0].owner.reset();
  EXPECT_EQ(pool_->Allocate(2)->bytes().data(), freed);
}

TEST_F(IncomingBatchTest, WrongPiecesAreRefusedAndNotCharged) {
  IncomingBatch batch({2, 1});
  EXPECT_TRUE(absl::IsInvalidArgument(Take(batch, {.offset = 1}, "a")));
  EXPECT_TRUE(absl::IsInvalidArgument(Take(batch, {.total = 4}, "a")));
  EXPECT_TRUE(absl::IsInvalidArgument(Take(batch, {}, "abcd")));
  EXPECT_TRUE(absl::IsInvalidArgument(Take(batch, {.last = true}, "ab")));
  EXPECT_TRUE(charged_.empty());
  IncomingBatch huge({SIZE_MAX, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(Take(huge, {.total = 1}, "a"))) << "no sum wraps";
}

TEST_F(IncomingBatchTest, MemoryThatIsRefusedIsAnError) {
  charge_ = absl::ResourceExhaustedError("no room");
  IncomingBatch batch({2, 1});
  EXPECT_EQ(Take(batch, {.total = 3}, "ab").message(), "no room");
  charge_ = absl::OkStatus();
  IncomingBatch huge({1, size_t{1} << 62});
  EXPECT_TRUE(absl::IsResourceExhausted(Take(huge, {}, "a"))) << "the system has no memory";
}

}  // namespace
}  // namespace gangway::transport
