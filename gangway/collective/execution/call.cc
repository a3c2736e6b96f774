// Implementation of call.h.
#include "gangway/collective/execution/call.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

#include "gangway/collective/execution/reduce.h"

namespace gangway::collective {
namespace {

// Others wait for each report that a part is reduced. So a member whose results are read where they are makes one for
// this number of messages.
constexpr size_t kRoundMessages = 4;

}  // namespace

MessageKey Call::Key(size_t message, Content content) const {
  MessageKey named = key;
  named.part = static_cast<uint32_t>(message * 2 + (content == Content::kPart ? 1 : 0));
  return named;
}

bool Call::IsInPlace(size_t message) const {
  const Message& one = planned.messages[message];
  if (kind() == xla::Collective::ALL_REDUCE) return one.in_parts;
  return planned.messages.size() > 1 || one.bytes > kFlatBytes;
}

bool Call::EndsRound(size_t message) const {
  const auto is_in_parts = [this](size_t i) {
    return i < planned.messages.size() && planned.messages[i].in_parts;
  };
  return is_in_parts(message) && ((message + 1) % kRoundMessages == 0 || !is_in_parts(message + 1));
}

void Call::Reduce(const Segment& segment, size_t bytes, std::byte* into,
                  absl::FunctionRef<const std::byte*(size_t rank)> bytes_of) const {
  const Reduction reduction =
      FindReduction(planned.meaning.reduction(),
                    planned.meaning.operands(static_cast<int>(segment.operand)).element_type());
  absl::InlinedVector<const std::byte*, 16> sources;
  for (size_t rank = 0; rank < role.sources->size(); ++rank) sources.push_back(bytes_of(rank));
  const ReductionMode mode;
  reduction.reducer(into, sources, bytes);
}

ByteRange Call::PartOf(const Segment& segment, size_t rank) const {
  const size_t least = (segment.bytes + role.sources->size() - 1) / role.sources->size();
  const size_t part = (least + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
  const size_t begin = std::min(rank * part, segment.bytes);
  return {begin, std::min(part, segment.bytes - begin)};
}

}  // namespace gangway::collective
