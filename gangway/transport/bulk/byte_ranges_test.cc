// What crosses in ranges lands where it was; ranges that are not of the block, or not as long as what came with them,
// are refused, however large their numbers are.
#include "gangway/transport/bulk/byte_ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gangway::transport {
namespace {

std::vector<std::byte> Numbered(size_t bytes) {
  std::vector<std::byte> block(bytes);
  for (size_t i = 0; i < bytes; ++i) block[i] = std::byte(i + 1);
  return block;
}

TEST(ByteRangesTest, WhatIsGatheredIsScatteredToTheSamePlaces) {
  const std::vector<std::byte> block = Numbered(64);
  const std::vector<ByteRange> ranges = {{0, 3}, {3, 1}, {10, 0}, {20, 30}, {63, 1}};
  const std::string bytes = Gather(block.data(), ranges);
  ASSERT_EQ(bytes.size(), 35u);
  ASSERT_TRUE(CheckRanges(ranges, block.size(), bytes.size()).ok());
  std::vector<std::byte> landed(64);
  Scatter(std::as_bytes(std::span(bytes)), ranges, landed.data());
  for (size_t i = 0; i < block.size(); ++i) {
    const bool sent = i < 4 || (i >= 20 && i < 50) || i == 63;
    EXPECT_EQ(landed[i], sent ? block[i] : std::byte{0}) << i;
  }
}

TEST(ByteRangesTest, NothingIsARange) {
  EXPECT_TRUE(CheckRanges({}, 64, 0).ok());
  EXPECT_EQ(Gather(nullptr, {}), "");
}

TEST(ByteRangesTest, RangesThatAreNotOfTheBlockAreRefused) {
  const auto refused = [](std::vector<ByteRange> ranges, size_t bytes) {
    return CheckRanges(ranges, 64, bytes).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{60, 5}}, 5)) << "beyond the end";
  EXPECT_TRUE(refused({{65, 0}}, 0)) << "behind the end";
  EXPECT_TRUE(refused({{SIZE_MAX, 2}}, 2)) << "wraps to 1";
  EXPECT_TRUE(refused({{2, SIZE_MAX - 1}}, SIZE_MAX - 1)) << "wraps to 0";
  EXPECT_TRUE(refused({{0, 8}, {7, 8}}, 16)) << "overlaps";
  EXPECT_TRUE(refused({{8, 8}, {0, 8}}, 16)) << "out of order";
  EXPECT_TRUE(refused({{0, 8}}, 7)) << "shorter";
  EXPECT_TRUE(refused({{0, 8}}, 9)) << "longer";
  EXPECT_TRUE(refused({}, 1)) << "no range for it";
}

}  // namespace
}  // namespace gangway::transport
