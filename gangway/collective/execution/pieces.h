// An operand or result that is cut along an axis other than its outermost one: the pieces of all members take turns in
// its memory, so what belongs to one member lies there in runs at equal distances. A member's own units lie one after
// the other. Pure functions, for any thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_PIECES_H_
#define GANGWAY_COLLECTIVE_EXECUTION_PIECES_H_

#include <algorithm>
#include <cstddef>

#include "gangway/collective/execution/plan.h"

namespace gangway::collective {

// A part of a segment: `count` runs of equal length. In the segment, each begins `piece` bytes after the one before it,
// and among the units of all members `piece * members` bytes.
struct PieceRuns {
  size_t at;      // of the first, in the segment
  size_t offset;  // of the first, among the units of all members
  size_t bytes;   // of each
  size_t count;
};

// Calls each(runs) for the segment's units, which are those of `member`: up to three times, because the first and the
// last piece may be in the segment in part.
template <typename Each>
void ForPieceRuns(const Segment& segment, size_t piece, size_t members, size_t member, Each each) {
  const size_t end = segment.begin + segment.bytes;
  for (size_t unit = segment.begin; unit < end;) {
    const size_t outer = unit / piece, within = unit % piece;
    const size_t bytes = std::min(piece - within, end - unit);
    const size_t count = bytes == piece ? (end - unit) / piece : 1;
    each(PieceRuns{.at = unit - segment.begin,
                   .offset = (outer * members + member) * piece + within,
                   .bytes = bytes,
                   .count = count});
    unit += bytes * count;
  }
}

// Runs of bytes, each `distance` after the one before it.
template <typename Byte>
struct Spaced {
  Byte* first;
  size_t distance;
  Byte* at(size_t index) const { return first + index * distance; }
};

// Copies `count` runs of `bytes` bytes, which do not overlap. Short ones need no call of std::memcpy each.
void CopySpaced(Spaced<std::byte> to, Spaced<const std::byte> from, size_t bytes, size_t count);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_PIECES_H_
