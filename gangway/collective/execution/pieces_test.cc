// Tests of pieces.h.
#include "gangway/collective/execution/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gangway::collective {
namespace {

// Each part of a member's units, wherever it begins and ends: byte by byte, what ForPieceRuns says at once.
TEST(PiecesTest, RunsSayWhereEachByteOfASegmentIs) {
  constexpr size_t kPiece = 5, kMembers = 3, kMember = 2, kUnits = 4 * kPiece;
  for (size_t begin = 0; begin < kUnits; ++begin) {
    for (size_t end = begin; end <= kUnits; ++end) {
      const Segment segment{.begin = begin, .bytes = end - begin};
      std::vector<size_t> offsets(end - begin, SIZE_MAX);
      int calls = 0;
      ForPieceRuns(segment, kPiece, kMembers, kMember, [&](const PieceRuns& runs) {
        ++calls;
        for (size_t i = 0; i < runs.count; ++i)
          for (size_t byte = 0; byte < runs.bytes; ++byte)
            offsets.at(runs.at + i * kPiece + byte) = runs.offset + i * kPiece * kMembers + byte;
      });
      EXPECT_LE(calls, 3);
      for (size_t unit = begin; unit < end; ++unit) {
        ASSERT_EQ(offsets[unit - begin],
                  (unit / kPiece * kMembers + kMember) * kPiece + unit % kPiece)
            << unit << " of " << begin << " to " << end;
      }
    }
  }
}

TEST(PiecesTest, RunsOfAnyLengthAreCopiedAndNothingElse) {
  constexpr size_t kCountMax = 3, kGap = 7;
  for (size_t bytes = 0; bytes < 300; ++bytes) {
    for (size_t count = 0; count <= kCountMax; ++count) {
      const size_t from_distance = bytes + 1, to_distance = bytes + kGap;
      std::vector<std::byte> from(kCountMax * from_distance + 1);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
      std::vector<std::byte> to(kCountMax * to_distance + 1, std::byte{0xee});
      std::vector<std::byte> expected = to;
      for (size_t i = 0; i < count; ++i)
        std::copy_n(from.begin() + i * from_distance, bytes, expected.begin() + i * to_distance);
      CopySpaced({to.data(), to_distance}, {from.data(), from_distance}, bytes, count);
      ASSERT_EQ(to, expected) << count << " runs of " << bytes;
    }
  }
}

}  // namespace
}  // namespace gangway::collective
