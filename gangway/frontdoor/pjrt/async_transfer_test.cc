// The pieces of an asynchronous transfer, and its mistakes that need no cluster. Transfers to one:
// tests/native/conformance/transfers_test.cc.
#include "gangway/frontdoor/pjrt/async_transfer.h"

#include <gtest/gtest.h>

#include <limits>

namespace gangway::pjrt {
namespace {

absl::Status Add(Pieces& pieces, int64_t offset, std::string_view text) {
  return pieces.Add(offset, {text.data(), text.size()});
}

TEST(PiecesTest, ComeInAnyOrder) {
  Pieces pieces(6);
  EXPECT_TRUE(Add(pieces, 4, "ef").ok());
  EXPECT_TRUE(Add(pieces, 0, "ab").ok());
  EXPECT_EQ(pieces.missing(), 2u);
  EXPECT_TRUE(Add(pieces, 2, "cd").ok());
  EXPECT_EQ(pieces.missing(), 0u);
  EXPECT_EQ(pieces.Take(), "abcdef");
}

TEST(PiecesTest, ALaterOneReplacesWhatItOverlaps) {
  Pieces pieces(6);
  EXPECT_TRUE(Add(pieces, 0, "aaaa").ok());
  EXPECT_TRUE(Add(pieces, 2, "bb").ok());
  EXPECT_EQ(pieces.missing(), 2u);
  EXPECT_TRUE(Add(pieces, 1, "ccccc").ok());
  EXPECT_EQ(pieces.missing(), 0u);
  EXPECT_EQ(pieces.Take(), "accccc");
}

TEST(PiecesTest, CountWhatIsMissingAmongManyRanges) {
  Pieces pieces(100);
  for (int64_t i = 0; i < 100; i += 10) EXPECT_TRUE(Add(pieces, i, "12345").ok());
  EXPECT_EQ(pieces.missing(), 50u);
  EXPECT_TRUE(Add(pieces, 3, std::string(60, 'x')).ok());
  EXPECT_EQ(pieces.missing(), 100u - 65 - 15);  // up to 65, and three pieces behind it
}

TEST(PiecesTest, OutsideOfTheBufferIsAnError) {
  Pieces pieces(4);
  for (int64_t offset : {int64_t{-1}, int64_t{3}, int64_t{5}, std::numeric_limits<int64_t>::max(),
                         std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(Add(pieces, offset, "ab").code(), absl::StatusCode::kOutOfRange) << offset;
  }
  EXPECT_EQ(pieces.missing(), 4u);
  EXPECT_TRUE(Add(pieces, 4, "").ok());
}

TEST(PiecesTest, NoBytesAreComplete) {
  Pieces pieces(0);
  EXPECT_EQ(pieces.missing(), 0u);
  EXPECT_EQ(pieces.Take(), "");
}

}  // namespace
}  // namespace gangway::pjrt
