// Implementation of relay.h.
#include "gangway/collective/execution/relay.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "gangway/base/status.h"
#include "gangway/collective/execution/pieces.h"

namespace gangway::collective {

Relay::Relay(Waiter& waiter, Sender& sender, const Call& call)
    : waiter_(waiter),
      sender_(sender),
      call_(call),
      reader_(waiter, call),
      members_(call.role.sources->size()),
      block_bytes_(call.planned.messages[0].bytes),
      blocks_(members_ * block_bytes_) {}

absl::Status Relay::Run() {
  Pack();
  size_t step = 0;
  for (size_t have = 1; have < members_; have *= 2, ++step) {
    const size_t count = std::min(have, members_ - have);
    GANGWAY_RETURN_IF_ERROR(Send(step, PositionAt(members_ - have), count));
    GANGWAY_RETURN_IF_ERROR(Receive(step, PositionAt(have), block(have), count));
  }
  waiter_.SetMet();
  Unpack();
  return absl::OkStatus();
}

void Relay::Pack() {
  for (const Segment& segment : call_.planned.messages[0].segments) {
    std::memcpy(block(0) + segment.offset, call_.operands[segment.operand].data() + segment.begin,
                segment.bytes);
  }
}

absl::Status Relay::Send(size_t step, uint32_t to, size_t count) {
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, sender_.BeginMessage());
  std::memcpy(out.data(), blocks_.data(), count * block_bytes_);
  const auto reader = std::make_shared<const std::vector<uint32_t>>(1, to);
  return sender_.EndMessage(
      out, call_.Key(step, Call::Content::kOperands), reader, Audience::kAll,
      [&](size_t, std::vector<ByteRange>& ranges) { ranges.push_back({0, count * block_bytes_}); });
}

absl::Status Relay::Receive(size_t step, uint32_t from, std::byte* into, size_t count) {
  const auto take = [&](Source& source, const MessageReader::Found& found) -> absl::Status {
    GANGWAY_RETURN_IF_ERROR(source.Await(step));
    std::memcpy(into, found.data, count * block_bytes_);
    return source.EndMessage();
  };
  if (waiter_.DeviceOf(from).shares_memory()) {
    SlotSource source(reader_, from);
    GANGWAY_RETURN_IF_ERROR(take(source, source.found()));
  } else {
    MirrorSource source(reader_, from);
    GANGWAY_RETURN_IF_ERROR(take(source, source.found()));
  }
  waiter_.Wake({&from, 1}, Deed::kRead);
  return absl::OkStatus();
}

void Relay::Unpack() const {
  for (const Segment& segment : call_.planned.messages[0].segments) {
    std::byte* const result = call_.results[segment.operand].data();
    const auto bytes_of = [&](size_t rank) { return BlockOf(rank) + segment.offset; };
    if (call_.kind() == xla::Collective::ALL_REDUCE) {
      call_.Reduce(segment, segment.bytes, result + segment.begin, bytes_of);
      continue;
    }
    const size_t each = call_.piece(segment.operand);
    for (size_t rank = 0; rank < members_; ++rank) {
      ForPieceRuns(segment, each, members_, rank, [&](const PieceRuns& runs) {
        CopySpaced({result + runs.offset, each * members_}, {bytes_of(rank) + runs.at, each},
                   runs.bytes, runs.count);
      });
    }
  }
}

}  // namespace gangway::collective
