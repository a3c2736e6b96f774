// Tests of incoming_shard.h.
#include "gangway/transport/bulk/incoming_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace gangway::transport {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMost = UINT64_MAX;

bool Takes(IncomingShard& shard, const ShardPiece& piece) {
  const IncomingShard before = shard;
  absl::Status taken = shard.Take(piece);
  if (taken.ok()) return true;
  EXPECT_TRUE(absl::IsInvalidArgument(taken)) << taken;
  EXPECT_EQ(shard.received(), before.received()) << "an error changes nothing";
  EXPECT_EQ(shard.complete(), before.complete());
  EXPECT_EQ(shard.size(), before.size());
  return false;
}

TEST(IncomingShard, PiecesComeInOrder) {
  IncomingShard shard(10);
  EXPECT_FALSE(Takes(shard, {.offset = 1, .size = 4})) << "a gap";
  EXPECT_TRUE(Takes(shard, {.offset = 0, .size = 4}));
  EXPECT_FALSE(Takes(shard, {.offset = 0, .size = 4})) << "a duplicate";
  EXPECT_FALSE(Takes(shard, {.offset = 3, .size = 4})) << "an overlap";
  EXPECT_FALSE(Takes(shard, {.offset = kMost, .size = 4}));
  EXPECT_TRUE(Takes(shard, {.offset = 4, .size = 0})) << "an empty piece is one";
  EXPECT_TRUE(Takes(shard, {.offset = 4, .size = 6, .last = true}));
  EXPECT_TRUE(shard.complete());
  EXPECT_EQ(shard.received(), 10u);
  EXPECT_FALSE(Takes(shard, {.offset = 10, .size = 0, .last = true})) << "the last one twice";
  EXPECT_FALSE(Takes(shard, {.offset = 10, .size = 1}));
}

TEST(IncomingShard, PiecesFitAndTheLastOneCompletesTheShard) {
  IncomingShard shard(10);
  EXPECT_FALSE(Takes(shard, {.size = 11}));
  EXPECT_FALSE(Takes(shard, {.size = 9, .last = true}));
  EXPECT_TRUE(Takes(shard, {.size = 5}));
  EXPECT_FALSE(Takes(shard, {.offset = 5, .size = 6}));
  EXPECT_FALSE(Takes(shard, {.offset = 5, .size = kMost - 4})) << "the sum wraps to 0";
  EXPECT_FALSE(Takes(shard, {.offset = 5, .size = kMost, .last = true})) << "the sum wraps to 4";
  EXPECT_TRUE(Takes(shard, {.offset = 5, .size = 5, .last = true}));
}

TEST(IncomingShard, TheFirstPieceMayTellTheSize) {
  IncomingShard shard;
  EXPECT_FALSE(shard.knows_size());
  EXPECT_FALSE(Takes(shard, {.size = 4, .total = 3}));
  EXPECT_FALSE(Takes(shard, {.size = 4, .total = 8, .last = true}));
  EXPECT_TRUE(Takes(shard, {.size = 4, .total = 8}));
  EXPECT_EQ(shard.size(), 8u);
  EXPECT_FALSE(Takes(shard, {.offset = 4, .size = 4, .total = 9})) << "another total";
  EXPECT_TRUE(Takes(shard, {.offset = 4, .size = 2, .total = 8})) << "the same";
  EXPECT_FALSE(Takes(shard, {.offset = 6, .size = 3}));
  EXPECT_TRUE(Takes(shard, {.offset = 6, .size = 2, .last = true}));
}

TEST(IncomingShard, ATotalThatWasNotAgreedOnOrComesLateIsRefused) {
  IncomingShard agreed(8);
  EXPECT_FALSE(Takes(agreed, {.size = 8, .total = 9, .last = true}));
  EXPECT_TRUE(Takes(agreed, {.size = 8, .total = 8, .last = true}));
  IncomingShard untold;
  EXPECT_TRUE(Takes(untold, {.size = 8}));
  EXPECT_FALSE(Takes(untold, {.offset = 8, .size = 8, .total = 16, .last = true}));
  EXPECT_TRUE(Takes(untold, {.offset = 8, .size = 8, .last = true}));
  EXPECT_EQ(untold.size(), 16u);
}

TEST(IncomingShard, OfUntoldSizeNoSumWraps) {
  IncomingShard shard;
  EXPECT_TRUE(Takes(shard, {.size = kMost - 1}));
  EXPECT_FALSE(Takes(shard, {.offset = kMost - 1, .size = 2}));
  EXPECT_TRUE(Takes(shard, {.offset = kMost - 1, .size = 1, .last = true}));
}

TEST(IncomingShard, AnEmptyShardIsOneLastPiece) {
  IncomingShard shard(0);
  EXPECT_FALSE(Takes(shard, {.size = 1, .last = true}));
  EXPECT_TRUE(Takes(shard, {.last = true}));
  EXPECT_TRUE(shard.complete());
}

TEST(IncomingShard, InOnePlaceInsteadOfPieces) {
  IncomingShard placed(8), sent(8);
  EXPECT_TRUE(placed.Place().ok());
  EXPECT_TRUE(placed.complete());
  EXPECT_FALSE(placed.Place().ok()) << "twice";
  EXPECT_FALSE(Takes(placed, {.size = 8, .last = true}));
  EXPECT_TRUE(Takes(sent, {.size = 4}));
  EXPECT_FALSE(sent.Place().ok());
}

TEST(IncomingShard, ErrorsTellTheSizes) {
  IncomingShard shard(10);
  ASSERT_TRUE(Takes(shard, {.size = 4}));
  EXPECT_THAT(std::string(shard.Take({.offset = 7, .size = 2}).message()),
              HasSubstr("2 bytes at offset 7 of a shard of 10 bytes, of which 4 had arrived"));
}

class StagedShardTest : public ::testing::Test {
 protected:
  absl::Status Take(const ShardPiece& piece, const std::string& bytes) {
    return shard_.Take(piece, bytes, [this](uint64_t more) {
      charged_.push_back(more);
      return charge_;
    });
  }
  std::string Contents() {
    StagedShard::Bytes bytes = shard_.TakeBytes();
    return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()};
  }

  std::shared_ptr<SharedPool> pool_ =
      SharedPool::Make({.bytes_max = size_t{256} << 20, .writable = true});
  StagedShard shard_;
  absl::Status charge_;
  std::vector<uint64_t> charged_;
};

TEST_F(StagedShardTest, TM2_AToldSizeIsChargedBeforeItsBytesAreThere) {
  ASSERT_TRUE(Take({.size = 3, .total = 5}, "abc").ok());
  EXPECT_EQ(charged_, std::vector<uint64_t>{5});
  ASSERT_TRUE(Take({.offset = 3, .size = 2, .last = true}, "de").ok());
  EXPECT_EQ(charged_.size(), 1u);
  EXPECT_TRUE(shard_.complete());
  EXPECT_EQ(shard_.size(), 5u);
  EXPECT_EQ(Contents(), "abcde");
}

TEST_F(StagedShardTest, TM2_AnUntoldSizeIsChargedAsItComes) {
  ASSERT_TRUE(Take({.size = 3}, "abc").ok());
  ASSERT_TRUE(Take({.offset = 3, .size = 2, .last = true}, "de").ok());
  EXPECT_EQ(charged_, (std::vector<uint64_t>{3, 2}));
  EXPECT_EQ(Contents(), "abcde");
}

TEST_F(StagedShardTest, TM2_WhatIsNotGrantedTakesNoMemory) {
  charge_ = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Take({.size = 1, .total = uint64_t{1} << 60}, "x").message(), "full");
  EXPECT_EQ(shard_.size(), 0u);
}

TEST_F(StagedShardTest, AWrongPieceIsNotCharged) {
  EXPECT_TRUE(absl::IsInvalidArgument(Take({.offset = 7, .size = 1, .total = 8}, "x")));
  EXPECT_TRUE(charged_.empty());
}

TEST_F(StagedShardTest, WhatTheSystemHasNoMemoryForIsAnError) {
  EXPECT_TRUE(absl::IsResourceExhausted(Take({.size = 1, .total = uint64_t{1} << 62}, "x")));
}

TEST_F(StagedShardTest, BytesInTheBlockAreTakenThere) {
  EXPECT_FALSE(shard_.Place().ok()) << "it has no block";
  std::shared_ptr<SharedBlock> block = pool_->Allocate(5);
  std::memcpy(block->writable(), "abcde", 5);
  shard_.Lend(std::move(block));
  EXPECT_TRUE(shard_.lends());
  ASSERT_TRUE(shard_.Place().ok());
  EXPECT_TRUE(shard_.complete());
  EXPECT_FALSE(shard_.lends());
  EXPECT_FALSE(shard_.Place().ok()) << "twice";
  EXPECT_TRUE(absl::IsInvalidArgument(Take({.size = 5, .last = true}, "fghij")));
  EXPECT_EQ(shard_.size(), 5u);
  EXPECT_EQ(Contents(), "abcde");
  EXPECT_TRUE(charged_.empty());
}

TEST_F(StagedShardTest, OB3_ABlockWhoseBytesComeOverTheLinkIsRetired) {
  std::shared_ptr<SharedBlock> block = pool_->Allocate(5);
  const uint64_t segment = block->segment();
  shard_.Lend(std::move(block));
  ASSERT_TRUE(Take({.size = 5, .last = true}, "fghij").ok());
  EXPECT_NE(pool_->Allocate(5)->segment(), segment);
  EXPECT_EQ(Contents(), "fghij");
}

}  // namespace
}  // namespace gangway::transport
