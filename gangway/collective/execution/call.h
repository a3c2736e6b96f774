// One call of a collective by one member, and what follows from its plan: how its messages are named and read.
//
// Immutable.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_CALL_H_
#define GANGWAY_COLLECTIVE_EXECUTION_CALL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"

#include "gangway/collective/execution/plan.h"
#include "gangway/collective/execution/shown.h"
#include "gangway/transport/bulk/byte_ranges.h"

namespace gangway::collective {

using transport::ByteRange;

struct Call {
  const PlannedCollective& planned;
  const Role& role;
  const uint32_t position;
  const MessageKey key;  // of its first message
  const std::span<const std::span<const std::byte>> operands;
  const std::span<const std::span<std::byte>> results;

  xla::Collective::Kind kind() const { return planned.meaning.kind(); }
  size_t members() const { return planned.group_size; }
  size_t piece(size_t operand) const {
    return planned.meaning.operands(static_cast<int>(operand)).piece_bytes();
  }

  // Of a message with operands, or with this member's part of their results.
  enum class Content { kOperands, kPart };
  MessageKey Key(size_t message, Content content) const;
  // Whether members on one worker read a message's bytes where these are, in place of the message. All members of a
  // group come to the same answer.
  bool IsInPlace(size_t message) const;
  // Whether the message is the last one of a round: those that read this member's parts where they are learn only then
  // that it has reduced them.
  bool EndsRound(size_t message) const;
  // Of a segment that is reduced in parts: the part of the member of this rank.
  ByteRange PartOf(const Segment& segment, size_t rank) const;
  // Reduces `bytes` of an operand of all sources, in the group's order.
  void Reduce(const Segment& segment, size_t bytes, std::byte* into,
              absl::FunctionRef<const std::byte*(size_t rank)> bytes_of) const;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_CALL_H_
