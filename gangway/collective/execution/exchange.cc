// Implementation of exchange.h.
#include "gangway/collective/execution/exchange.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/execution/reduce.h"
#include "gangway/collective/execution/streaming_copy.h"

namespace gangway::collective {
namespace {

using xla::Collective;

constexpr size_t kStreamedMin = 4096;  // smaller pieces are copied normally

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

bool IsBeyondCaches(const PlannedCollective& planned, size_t members) {
  size_t bytes = 0;
  for (size_t each : planned.result_bytes) bytes += each;
  return bytes >= kBeyondCaches / std::max<size_t>(members, 1);
}

std::optional<RaggedPart> RaggedPartOf(const Call& call) {
  if (call.kind() != Collective::RAGGED_ALL_TO_ALL) return std::nullopt;
  return std::optional<RaggedPart>(std::in_place, call.planned, call.position, call.operands,
                                   call.results[0]);
}

}  // namespace

Exchange::Exchange(Waiter& waiter, Sender& sender, const Call& call)
    : waiter_(waiter),
      call_(call),
      is_beyond_caches_(IsBeyondCaches(call.planned, waiter.launch().members_of_host())),
      ragged_(RaggedPartOf(call)),
      offer_(waiter, sender, call, ragged_ ? &*ragged_ : nullptr),
      sources_(waiter, call) {}

absl::Status Exchange::Run() {
  GANGWAY_RETURN_IF_ERROR(CheckOverlaps());
  if (ragged_) GANGWAY_RETURN_IF_ERROR(ragged_->Begin());  // before others see what it sends
  offer_.Open();
  const absl::Status status = SendAndReceive();
  sources_.Leave();
  return offer_.End(status);
}

absl::Status Exchange::CheckOverlaps() const {
  for (size_t i = 0; i < call_.operands.size(); ++i) {
    for (size_t j = 0; j < call_.results.size(); ++j) {
      const bool may_be_alike = call_.kind() == Collective::RAGGED_ALL_TO_ALL
                                    ? i == kRaggedBefore
                                    : call_.kind() == Collective::ALL_REDUCE && i == j;
      const bool in_place = may_be_alike && call_.results[j].data() == call_.operands[i].data();
      if (in_place || !Overlap(call_.operands[i], call_.results[j])) continue;
      return absl::InternalError(absl::StrCat(
          "collective ", waiter_.CollectiveName(), ": result ", j, " overlaps operand ", i,
          ", which other members may not have read yet. This is a defect of "
          "Gangway or of the plugin: please report the program"));
    }
  }
  return absl::OkStatus();
}

// Two messages are on their way before the first is awaited, and the parts of one are gathered when those of the next
// have been reduced: then others have seldom to be waited for. A device reads another one's messages in the order in
// which they were sent: operands 0 and 1, parts 0, operands 2, parts 1, operands 3. The same with rounds of parts from
// members that are read where they are.
absl::Status Exchange::SendAndReceive() {
  const size_t messages = call_.planned.messages.size();
  GANGWAY_RETURN_IF_ERROR(offer_.Send(0));
  GANGWAY_RETURN_IF_ERROR(offer_.Send(1));
  std::optional<size_t> message, round;  // whose parts are to be gathered
  for (size_t i = 0; i < messages; ++i) {
    GANGWAY_RETURN_IF_ERROR(Receive(i));
    GANGWAY_RETURN_IF_ERROR(offer_.Send(i + 2));
    if (message) GANGWAY_RETURN_IF_ERROR(GatherSent(*message));
    message = call_.planned.messages[i].in_parts ? std::optional<size_t>(i) : std::nullopt;
    if (!call_.EndsRound(i)) continue;
    if (round) GANGWAY_RETURN_IF_ERROR(GatherRound(*round));
    round = i;
  }
  if (message) GANGWAY_RETURN_IF_ERROR(GatherSent(*message));
  // Of parts, the last one that is read says that all has been.
  return round ? GatherRound(*round) : sources_.EndMessages();
}

absl::Status Exchange::Receive(size_t index) {
  const Message& message = call_.planned.messages[index];
  if (message.in_parts) return ReceiveInParts(index);
  if (call_.role.sources == nullptr) {  // no member sends to it
    for (const Segment& segment : message.segments)
      std::memset(call_.results[segment.operand].data() + segment.begin, 0, segment.bytes);
    return absl::OkStatus();
  }
  GANGWAY_RETURN_IF_ERROR(sources_.Await(index));
  if (ragged_) return ReceiveRagged(index);
  for (const Segment& segment : message.segments) Unpack(index, segment);
  return sources_.EndMessage(index);
}

// Lists that are wrong may be a message that its sender has written over: then that is the error.
absl::Status Exchange::ReceiveRagged(size_t index) {
  absl::Status checked;
  for (const Segment& segment : call_.planned.messages[index].segments) {
    const bool is_list = segment.operand != kRaggedRows;
    const size_t offset = call_.role.rank * call_.planned.units[segment.operand] + segment.begin;
    for (size_t rank = 0; rank < sources_.size(); ++rank) {
      const Source& source = sources_.at(index, rank);
      if (is_list)
        ragged_->TakeList(segment, rank, source.Block(segment, 0, offset));
      else
        ragged_->TakeRows(segment, rank, source.Whole(segment));
    }
    if (ragged_->CompletesLists(segment)) checked = ragged_->CheckLists();
    if (!checked.ok()) break;
  }
  GANGWAY_RETURN_IF_ERROR(sources_.EndMessage(index));
  return checked;
}

void Exchange::Unpack(size_t index, const Segment& segment) const {
  std::byte* const result = call_.results[segment.operand].data();
  switch (call_.kind()) {
    case Collective::ALL_REDUCE:
      return call_.Reduce(segment, segment.bytes, result + segment.begin,
                          [&](size_t rank) { return sources_.at(index, rank).Whole(segment); });
    case Collective::ALL_GATHER:
      for (size_t from = 0; from < sources_.size(); ++from) {
        const size_t each = call_.piece(segment.operand);
        const std::byte* const data = sources_.at(index, from).Whole(segment);
        ForPieceRuns(segment, each, call_.members(), from, [&](const PieceRuns& runs) {
          CopyResults({result + runs.offset, each * call_.members()}, {data + runs.at, each}, runs);
        });
      }
      return;
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
    case Collective::ALL_TO_ALL_TUPLE:
      return UnpackBlocks(index, segment);
    default:
      CopyResult(result + segment.begin, sources_.at(index, 0).Whole(segment), segment.bytes);
  }
}

void Exchange::UnpackBlocks(size_t index, const Segment& segment) const {
  std::byte* const result = call_.results[segment.operand].data();
  if (call_.kind() == Collective::ALL_TO_ALL_TUPLE) {
    for (size_t from = 0; from < sources_.size(); ++from) {
      CopyResult(call_.results[from].data() + segment.begin,
                 sources_.at(index, from).Block(segment, 0, segment.begin), segment.bytes);
    }
    return;
  }
  const size_t own = call_.role.rank;
  const size_t each = call_.piece(segment.operand), distance = each * call_.members();
  ForPieceRuns(segment, each, call_.members(), own, [&](const PieceRuns& runs) {
    if (call_.kind() == Collective::ALL_TO_ALL) {
      for (size_t from = 0; from < sources_.size(); ++from) {
        const Source& source = sources_.at(index, from);
        CopyResults({result + runs.offset + from * each - own * each, distance},
                    {source.Block(segment, runs.at, runs.offset), source.PieceDistance(each)},
                    runs);
      }
      return;
    }
    for (size_t i = 0; i < runs.count; ++i) {
      const size_t at = runs.at + i * each, offset = runs.offset + i * distance;
      call_.Reduce(segment, runs.bytes, result + segment.begin + at, [&](size_t rank) {
        return sources_.at(index, rank).Block(segment, at, offset);
      });
    }
  });
}

// A large operand: this member reduces its part of the message, and passes that on.
absl::Status Exchange::ReceiveInParts(size_t index) {
  const Segment& segment = call_.planned.messages[index].segments[0];
  GANGWAY_RETURN_IF_ERROR(sources_.Await(index));
  const ByteRange own = call_.PartOf(segment, call_.role.rank);
  call_.Reduce(segment, own.bytes,
               call_.results[segment.operand].data() + segment.begin + own.offset,
               [&](size_t rank) { return sources_.at(index, rank).Whole(segment) + own.offset; });
  GANGWAY_RETURN_IF_ERROR(sources_.EndMessage(index));
  return offer_.SendPart(index, segment);
}

// The parts of the members that send them.
absl::Status Exchange::GatherSent(size_t index) {
  return sources_.TakeParts(
      Source::Reports::kEachMessage, index,
      [&](size_t rank, const Source& source) { CopyPart(index, rank, source); });
}

// The parts of the others, of a round with this last message.
absl::Status Exchange::GatherRound(size_t last) {
  return sources_.TakeParts(
      Source::Reports::kEachRound, last, [&](size_t rank, const Source& source) {
        for (size_t i = last;; --i) {
          CopyPart(i, rank, source);
          if (i == 0 || call_.EndsRound(i - 1) || !call_.planned.messages[i - 1].in_parts) break;
        }
      });
}

void Exchange::CopyPart(size_t index, size_t rank, const Source& source) const {
  const Segment& segment = call_.planned.messages[index].segments[0];
  const ByteRange part = call_.PartOf(segment, rank);
  CopyResult(call_.results[segment.operand].data() + segment.begin + part.offset,
             source.Part(segment, part), part.bytes);
}

void Exchange::CopyResult(std::byte* to, const std::byte* from, size_t bytes) const {
  if (to == from) return;
  if (is_beyond_caches_ && bytes >= kStreamedMin)
    StreamingCopy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void Exchange::CopyResults(const Spaced<std::byte>& to, const Spaced<const std::byte>& from,
                           const PieceRuns& runs) const {
  if (runs.bytes < kStreamedMin) return CopySpaced(to, from, runs.bytes, runs.count);
  for (size_t i = 0; i < runs.count; ++i) CopyResult(to.at(i), from.at(i), runs.bytes);
}

}  // namespace gangway::collective
