// Implementation of ragged.h.
#include "gangway/collective/execution/ragged.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::collective {
namespace {

// Lists among those that are sent, which begin at kRaggedLists.
constexpr size_t kBegins = 0;
constexpr size_t kCounts = 1;
constexpr size_t kIntos = 2;

template <typename Integer>
int64_t Read(const std::byte* entries, size_t index) {
  Integer entry;
  std::memcpy(&entry, entries + index * sizeof(Integer), sizeof(Integer));
  return static_cast<int64_t>(entry);
}

// Whether rows [begin, begin + count) are among the first `rows`.
bool IsWithin(int64_t begin, int64_t count, uint64_t rows) {
  return begin >= 0 && count >= 0 && static_cast<uint64_t>(begin) <= rows &&
         static_cast<uint64_t>(count) <= rows - static_cast<uint64_t>(begin);
}

}  // namespace

RaggedPart::RaggedPart(const PlannedCollective& planned, uint32_t position,
                       std::span<const std::span<const std::byte>> operands,
                       std::span<std::byte> result)
    : planned_(planned),
      role_(planned.roles[position]),
      position_(position),
      operands_(operands),
      result_(result),
      row_bytes_(planned.meaning.operands(kRaggedRows).piece_bytes()),
      updates_(planned.meaning.operands(kRaggedLists).outer() / planned.group_size) {}

absl::Status RaggedPart::Begin() {
  const Lists own = {operands_[kRaggedLists].data(), operands_[kRaggedLists + 1].data(),
                     operands_[kRaggedLists + 2].data()};
  sent_.reserve(planned_.group_size * updates_);
  for (size_t i = 0; i < planned_.group_size * updates_; ++i) {
    const Update update = UpdateOf(own, i);
    GANGWAY_RETURN_IF_ERROR(Check(update, position_, (*role_.readers)[i / updates_]));
    sent_.push_back(RunOf(update));
  }
  packed_ = sent_;
  std::ranges::sort(packed_, {}, &Run::begin);
  size_t end = 0;
  for (Run& run : packed_) {
    run.begin = std::max(run.begin, end);
    end = std::max(end, run.end);
  }
  std::erase_if(packed_, [](const Run& run) { return run.begin >= run.end; });
  const std::span<const std::byte> before = operands_[kRaggedBefore];
  if (!before.empty() && before.data() != result_.data())
    std::memcpy(result_.data(), before.data(), before.size());
  return absl::OkStatus();
}

void RaggedPart::Pack(const Segment& segment, std::byte* into) const {
  const std::byte* const operand = operands_[segment.operand].data();
  if (segment.operand != kRaggedRows) {
    const size_t units = planned_.units[segment.operand];
    for (size_t to = 0; to < planned_.group_size; ++to)
      std::memcpy(into + to * segment.stride, operand + to * units + segment.begin, segment.bytes);
    return;
  }
  for (const Run& run : packed_) {
    const size_t begin = std::max(run.begin, segment.begin);
    const size_t end = std::min(run.end, segment.begin + segment.bytes);
    if (begin < end) std::memcpy(into + (begin - segment.begin), operand + begin, end - begin);
  }
}

void RaggedPart::AddNeeds(const Segment& segment, size_t rank,
                          std::vector<ByteRange>& ranges) const {
  for (size_t i = rank * updates_; i < (rank + 1) * updates_; ++i) {
    const size_t begin = std::max(sent_[i].begin, segment.begin);
    const size_t end = std::min(sent_[i].end, segment.begin + segment.bytes);
    if (begin < end) ranges.push_back({segment.offset + (begin - segment.begin), end - begin});
  }
}

void RaggedPart::TakeList(const Segment& segment, size_t rank, const std::byte* entries) {
  const size_t units = planned_.units[segment.operand];
  std::vector<std::byte>& taken = taken_[segment.operand - kRaggedLists];
  taken.resize(planned_.group_size * units);
  std::memcpy(taken.data() + rank * units + segment.begin, entries, segment.bytes);
}

bool RaggedPart::CompletesLists(const Segment& segment) const {
  return segment.operand == kRaggedLists + kSentLists - 1 &&
         segment.begin + segment.bytes == planned_.units[segment.operand];
}

absl::Status RaggedPart::CheckLists() {
  const Lists lists = {taken_[kBegins].data(), taken_[kCounts].data(), taken_[kIntos].data()};
  arriving_.reserve(planned_.group_size * updates_);
  for (size_t i = 0; i < planned_.group_size * updates_; ++i) {
    const Update update = UpdateOf(lists, i);
    const uint32_t sender = (*role_.sources)[i / updates_];
    GANGWAY_RETURN_IF_ERROR(Check(update, sender, position_));
    const int64_t expected = EntryOf(kSentLists, operands_[kRaggedLists + kSentLists].data(), i);
    if (expected != update.count) {
      return Wrong(absl::StrCat("position ", sender, " sends ", update.count, " rows to position ",
                                position_, ", which expects ", expected));
    }
    arriving_.push_back(RunOf(update));
  }
  return absl::OkStatus();
}

void RaggedPart::TakeRows(const Segment& segment, size_t rank, const std::byte* rows) const {
  for (size_t i = rank * updates_; i < (rank + 1) * updates_; ++i) {
    const Run& run = arriving_[i];
    const size_t begin = std::max(run.begin, segment.begin);
    const size_t end = std::min(run.end, segment.begin + segment.bytes);
    if (begin < end)
      std::memcpy(result_.data() + run.into + (begin - run.begin), rows + (begin - segment.begin),
                  end - begin);
  }
}

// `list`: counted from kRaggedLists on.
int64_t RaggedPart::EntryOf(size_t list, const std::byte* entries, size_t index) const {
  switch (planned_.meaning.operands(static_cast<int>(kRaggedLists + list)).element_type()) {
    case xla::TYPE_S32:
      return Read<int32_t>(entries, index);
    case xla::TYPE_U32:
      return Read<uint32_t>(entries, index);
    default:  // a larger unsigned one reads as negative, which is out of bounds, too
      return Read<int64_t>(entries, index);
  }
}

RaggedPart::Update RaggedPart::UpdateOf(const Lists& lists, size_t index) const {
  return {.begin = EntryOf(kBegins, lists[kBegins], index),
          .count = EntryOf(kCounts, lists[kCounts], index),
          .into = EntryOf(kIntos, lists[kIntos], index)};
}

absl::Status RaggedPart::Check(const Update& update, uint32_t sender, uint32_t receiver) const {
  if (update.count == 0) return absl::OkStatus();
  const uint64_t rows = planned_.meaning.operands(kRaggedRows).outer();
  if (!IsWithin(update.begin, update.count, rows)) {
    return Wrong(absl::StrCat("position ", sender, " sends ", update.count, " rows from row ",
                              update.begin, " on to position ", receiver, ", and has ", rows));
  }
  const uint64_t room = planned_.meaning.operands(kRaggedBefore).outer();
  if (!IsWithin(update.into, update.count, room)) {
    return Wrong(absl::StrCat("position ", sender, " sends ", update.count, " rows to row ",
                              update.into, " of position ", receiver, ", whose result has ", room));
  }
  return absl::OkStatus();
}

// Of an update that is checked.
RaggedPart::Run RaggedPart::RunOf(const Update& update) const {
  if (update.count == 0) return {};
  const size_t begin = static_cast<size_t>(update.begin) * row_bytes_;
  return {.begin = begin,
          .end = begin + static_cast<size_t>(update.count) * row_bytes_,
          .into = static_cast<size_t>(update.into) * row_bytes_};
}

absl::Status RaggedPart::Wrong(const std::string& why) const {
  return absl::InvalidArgumentError(absl::StrCat("collective ", planned_.Name(), ": ", why));
}

}  // namespace gangway::collective
