// Implementation of offer.h.
#include "gangway/collective/execution/offer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gangway/base/status.h"
#include "gangway/collective/execution/pieces.h"

namespace gangway::collective {
namespace {

using xla::Collective;

// Operands and results that one message shows.
constexpr size_t kShownMax = kMessageBytes / sizeof(uint64_t);

}  // namespace

Offer::Offer(Waiter& waiter, Sender& sender, const Call& call, const RaggedPart* ragged)
    : waiter_(waiter), sender_(sender), call_(call), ragged_(ragged) {}

// Also after an exception.
Offer::~Offer() {
  if (state_ == State::kClosed) return;
  if (heap_ != nullptr && state_ != State::kEnded) sender_.Hide();
  if (readers_here_.empty()) return;
  if (state_ != State::kEnded)
    waiter_.launch().Abort(absl::ResourceExhaustedError("not enough memory for a collective"));
  waiter_.device().shown().Close();
}

void Offer::Open() {
  FindReaders();
  if (has_readers_elsewhere_ && MayShow()) {
    auto heap = sender_.HeapToShow();
    if (heap != nullptr && AreInHeap(*heap)) heap_ = std::move(heap);
  }
  if (readers_here_.empty() && heap_ == nullptr) return;
  if (!readers_here_.empty()) {
    waiter_.device().shown().Open(call_.key, {call_.operands.begin(), call_.operands.end()},
                                  {call_.results.begin(), call_.results.end()});
    state_ = State::kOpen;
    waiter_.Wake(readers_here_, Deed::kWritten);
  }
  state_ = State::kOpen;
}

void Offer::FindReaders() {
  if (call_.role.readers == nullptr) return;
  bool any_in_place = false;
  for (size_t i = 0; i < call_.planned.messages.size(); ++i) any_in_place |= call_.IsInPlace(i);
  if (!any_in_place) return;
  const uint32_t own = waiter_.device().number();
  for (uint32_t reader : *call_.role.readers) {
    const PeerDevice& device = waiter_.DeviceOf(reader);
    is_elsewhere_.push_back(!waiter_.IsHere(device));
    if (is_elsewhere_.back()) {
      has_readers_elsewhere_ = true;
    } else if (device.number() != own) {
      readers_here_.push_back(reader);
    }
  }
}

// Members come to different answers: a reader sees what the first message is. What fits into one message is copied into
// it, in the cache, and its sender goes on.
bool Offer::MayShow() const {
  const size_t messages = call_.planned.messages.size();
  if (messages <= 1 || call_.operands.size() + call_.results.size() > kShownMax) return false;
  for (size_t i = 0; i < messages; ++i)
    if (!call_.IsInPlace(i)) return false;
  return true;
}

bool Offer::AreInHeap(const ReadableHeap& heap) const {
  const auto is_there = [&heap](std::span<const std::byte> each) {
    return heap.OffsetOf(each).has_value();
  };
  bool are_there = std::ranges::all_of(call_.results, is_there);
  for (const auto& operand : call_.operands) {
    if (is_there(operand)) continue;
    are_there = false;
    waiter_.launch().NoteOutsideHeap(operand.data());
  }
  return are_there;
}

absl::Status Offer::ShowInHeap() {
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, sender_.BeginMessage());
  std::byte* into = out.data();
  const auto add = [&](std::span<const std::byte> each) {
    const uint64_t offset = *heap_->OffsetOf(each);
    std::memcpy(into, &offset, sizeof(offset));
    into += sizeof(offset);
  };
  for (const auto& each : call_.operands) add(each);
  for (const auto& each : call_.results) add(each);
  sender_.EndShowing(out, call_.Key(0, Call::Content::kOperands), call_.role.readers);
  return absl::OkStatus();
}

bool Offer::IsSent(size_t message) const {
  if (heap_ != nullptr) return message == 0;
  return !call_.IsInPlace(message) || has_readers_elsewhere_;
}

absl::Status Offer::Send(size_t message) {
  if (call_.role.readers == nullptr || message >= call_.planned.messages.size() || !IsSent(message))
    return absl::OkStatus();
  if (heap_ != nullptr) return ShowInHeap();
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, sender_.BeginMessage());
  const Message& planned = call_.planned.messages[message];
  for (const Segment& segment : planned.segments)
    Pack(message, segment, out.data() + segment.offset);
  return sender_.EndMessage(out, call_.Key(message, Call::Content::kOperands), call_.role.readers,
                            AudienceOf(message), [&](size_t rank, std::vector<ByteRange>& ranges) {
                              for (const Segment& segment : planned.segments) {
                                if (ragged_ != nullptr && segment.operand == kRaggedRows)
                                  ragged_->AddNeeds(segment, rank, ranges);
                                else
                                  ranges.push_back(NeedOf(planned, segment, rank));
                              }
                            });
}

// What the reader of this rank needs of a segment.
ByteRange Offer::NeedOf(const Message& message, const Segment& segment, size_t rank) const {
  if (message.in_parts) {
    const ByteRange part = call_.PartOf(segment, rank);
    return {segment.offset + part.offset, part.bytes};
  }
  if (SendsBlocks(call_.kind(), segment.operand))
    return {segment.offset + rank * segment.stride, segment.bytes};
  return {segment.offset, segment.bytes};
}

void Offer::Pack(size_t message, const Segment& segment, std::byte* into) const {
  const std::byte* const operand = call_.operands[segment.operand].data();
  const auto each_reader = [&](auto pack) {
    for (size_t rank = 0; rank < call_.role.readers->size(); ++rank)
      if (IsPackedFor(message, rank)) pack(rank);
  };
  if (call_.planned.messages[message].in_parts) {
    each_reader([&](size_t rank) {
      const ByteRange part = call_.PartOf(segment, rank);
      std::memcpy(into + part.offset, operand + segment.begin + part.offset, part.bytes);
    });
    return;
  }
  switch (call_.kind()) {
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
      return each_reader([&](size_t to) {
        const size_t each = call_.piece(segment.operand);
        ForPieceRuns(segment, each, call_.members(), to, [&](const PieceRuns& runs) {
          CopySpaced({into + to * segment.stride + runs.at, each},
                     {operand + runs.offset, each * call_.members()}, runs.bytes, runs.count);
        });
      });
    case Collective::ALL_TO_ALL_TUPLE:
      return each_reader([&](size_t to) {
        std::memcpy(into + to * segment.stride, call_.operands[to].data() + segment.begin,
                    segment.bytes);
      });
    case Collective::RAGGED_ALL_TO_ALL:
      return ragged_->Pack(segment, into);
    default:
      std::memcpy(into, operand + segment.begin, segment.bytes);
  }
}

absl::Status Offer::SendPart(size_t message, const Segment& segment) {
  const bool ends_round = call_.EndsRound(message);
  if (ends_round && !readers_here_.empty()) {
    waiter_.device().shown().SetReduced(message + 1);
    waiter_.Wake(readers_here_, Deed::kWritten);
  }
  if (!has_readers_elsewhere_ || (heap_ != nullptr && !ends_round)) return absl::OkStatus();
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, sender_.BeginMessage());
  const MessageKey key = call_.Key(message, Call::Content::kPart);
  if (heap_ != nullptr) {
    sender_.EndShowing(out, key, call_.role.readers);
    return absl::OkStatus();
  }
  const ByteRange own = call_.PartOf(segment, call_.role.rank);
  std::memcpy(out.data(), call_.results[segment.operand].data() + segment.begin + own.offset,
              own.bytes);
  return sender_.EndMessage(
      out, key, call_.role.readers, Audience::kOtherWorkers,
      [&](size_t, std::vector<ByteRange>& ranges) { ranges.push_back({0, own.bytes}); });
}

absl::Status Offer::AwaitReadersHere() {
  const Shown& shown = waiter_.device().shown();
  for (uint32_t reader : readers_here_) {
    const PeerDevice& device = waiter_.DeviceOf(reader);
    GANGWAY_RETURN_IF_ERROR(waiter_.Await(device, {.deed = Deed::kRead},
                                          [&] { return shown.IsReadBy(device.device); }));
  }
  return absl::OkStatus();
}

absl::Status Offer::End(absl::Status status) {
  if (state_ == State::kClosed) return status;
  if (status.ok()) status = AwaitReadersHere();
  if (status.ok() && heap_ != nullptr) status = sender_.AwaitReadersElsewhere(call_.role.readers);
  if (!status.ok()) waiter_.launch().Abort(status);
  if (!status.ok() && heap_ != nullptr) sender_.Hide();
  state_ = State::kEnded;
  return status;
}

}  // namespace gangway::collective
