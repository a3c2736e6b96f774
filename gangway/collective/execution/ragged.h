// One member's part in a ragged exchange: which rows of its operand go to which member, and where the rows of others go
// in its result.
//
// The program passes the rows, what the result is where no row arrives, and four lists with the same number of entries
// for each member, in the group's order: the first row to send, how many rows, their first row in the receiver's
// result, and how many rows arrive. Each receiver gets its entries of the first three lists before any rows.
//
// The lists are data of the program, and another member's may change while they are read, if it has failed. So they are
// copied, then checked, and only then used: nothing outside of an operand or a result is ever read or written.
// INVALID_ARGUMENT: an entry is out of bounds, or sender and receiver disagree; the message names both positions. An
// entry of no rows has no offsets to check. Where rows overlap in a result, those of the later message remain, and
// within a message those of the later member in the group's order.
//
// Threading: one thread at a time.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_RAGGED_H_
#define GANGWAY_COLLECTIVE_EXECUTION_RAGGED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/collective/execution/plan.h"
#include "gangway/transport/bulk/byte_ranges.h"

namespace gangway::collective {

using transport::ByteRange;

class RaggedPart {
 public:
  // All arguments outlive it. `operands`, `result`: those of the call, of the sizes that are planned.
  RaggedPart(const PlannedCollective& planned, uint32_t position,
             std::span<const std::span<const std::byte>> operands, std::span<std::byte> result);

  // Checks what this member sends, and fills the result with what it is where no row arrives.
  absl::Status Begin();

  // Writes a segment into a message: of the rows, only those that some member gets.
  void Pack(const Segment& segment, std::byte* into) const;
  // What the reader of this rank needs of a segment of the rows.
  void AddNeeds(const Segment& segment, size_t rank, std::vector<ByteRange>& ranges) const;

  // A segment of a list; `entries`: what the member of this rank says of the rows for this one.
  void TakeList(const Segment& segment, size_t rank, const std::byte* entries);
  // Whether this segment completes the lists.
  bool CompletesLists(const Segment& segment) const;
  // Checks the lists of all members, once they are complete and before rows are taken.
  absl::Status CheckLists();
  // A segment of the rows of the member of this rank.
  void TakeRows(const Segment& segment, size_t rank, const std::byte* rows) const;

 private:
  // In rows.
  struct Update {
    int64_t begin = 0;
    int64_t count = 0;
    int64_t into = 0;
  };
  // In bytes: of an operand, and where they go in a result.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
    size_t into = 0;
  };
  static constexpr size_t kSentLists = 3;
  // The first three lists, each with `updates_` entries or more.
  using Lists = std::array<const std::byte*, kSentLists>;

  int64_t EntryOf(size_t list, const std::byte* entries, size_t index) const;
  Update UpdateOf(const Lists& lists, size_t index) const;
  absl::Status Check(const Update& update, uint32_t sender, uint32_t receiver) const;
  Run RunOf(const Update& update) const;
  absl::Status Wrong(const std::string& why) const;

  const PlannedCollective& planned_;
  const Role& role_;
  const uint32_t position_;
  const std::span<const std::span<const std::byte>> operands_;
  const std::span<std::byte> result_;
  const size_t row_bytes_;
  const size_t updates_;     // for each member
  std::vector<Run> sent_;    // by rank, `updates_` of each
  std::vector<Run> packed_;  // what is sent to any member, in increasing order, without overlaps
  std::array<std::vector<std::byte>, kSentLists> taken_;  // the entries of all members, by rank
  std::vector<Run> arriving_;                             // by rank, once they are checked
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_RAGGED_H_
