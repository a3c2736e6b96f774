// Implementation of exchange.h.
#include "gangway/collective/execution/exchange.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/execution/reduce.h"
#include "gangway/collective/execution/streaming_copy.h"

namespace gangway::collective {
namespace {

using xla::Collective;

// Others wait for each report that a part is reduced. So a member whose results are read where they are makes one for
// so many messages.
constexpr size_t kRoundMessages = 4;
constexpr size_t kStreamedMin = 4096;  // smaller pieces are copied normally
// Operands and results that one message shows.
constexpr size_t kShownMax = kMessageBytes / sizeof(uint64_t);

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

bool IsBeyondCaches(const PlannedCollective& planned, size_t members) {
  size_t bytes = 0;
  for (size_t each : planned.result_bytes) bytes += each;
  return bytes >= kBeyondCaches / std::max<size_t>(members, 1);
}

// Whether members on one worker read it where it is. All members of a group come to the same answer.
bool IsLarge(const PlannedCollective& planned, const Message& message) {
  if (planned.meaning.kind() == Collective::ALL_REDUCE) return message.in_parts;
  return planned.messages.size() > 1 || message.bytes > kFlatBytes;
}

}  // namespace

Exchange::Exchange(Member& member, uint32_t number, uint32_t round,
                   std::span<const std::span<const std::byte>> operands,
                   std::span<const std::span<std::byte>> results)
    : member_(member),
      planned_(member.launch_->plan().at(number)),
      role_(planned_.roles[member.position_]),
      key_{member.launch_->gang().place, number, round, 0},
      operands_(operands),
      results_(results),
      is_beyond_caches_(IsBeyondCaches(planned_, member.launch_->members_of_host())) {}

absl::Status Exchange::Run() {
  GANGWAY_RETURN_IF_ERROR(CheckOverlaps());
  FindMembersHere();
  if (kind() == Collective::RAGGED_ALL_TO_ALL) {
    ragged_.emplace(planned_, member_.position_, operands_, results_[0]);
    GANGWAY_RETURN_IF_ERROR(ragged_->Begin());  // before others see what this member sends
  }
  shows_ = heap_ != nullptr && AreInHeap();
  if (readers_here_.empty() && !shows_) return ExchangeAll();
  if (!readers_here_.empty()) {
    own_shown().Open(key_, {operands_.begin(), operands_.end()},
                     {results_.begin(), results_.end()});
    is_open_ = true;
    member_.Wake(readers_here_, Deed::kWritten);
  }
  absl::Status status = ExchangeAll();
  if (status.ok()) status = AwaitReadersHere();
  if (status.ok() && shows_) status = member_.AwaitReadersElsewhere(role_.readers);
  if (!status.ok()) member_.launch_->Abort(status);  // members here that read must end, too
  if (!status.ok() && shows_) member_.Hide();
  is_over_ = true;
  return status;
}

// Also after an exception.
Exchange::~Exchange() {
  LeaveSources();
  if (shows_ && !is_over_) member_.Hide();
  if (!is_open_) return;
  if (!is_over_)
    member_.launch_->Abort(absl::ResourceExhaustedError("not enough memory for a collective"));
  own_shown().Close();
}

void Exchange::FindMembersHere() {
  has_large_ =
      std::ranges::any_of(planned_.messages, [this](const Message& each) { return IsRead(each); });
  if (role_.sources != nullptr) {
    for (uint32_t source : *role_.sources)
      sources_.push_back({.position = source, .is_self = source == member_.position_});
  }
  if (role_.readers == nullptr || !has_large_) return;
  for (uint32_t reader : *role_.readers) {
    is_elsewhere_.push_back(!member_.IsHere(member_.PlaceOf(reader)));
    if (is_elsewhere_.back()) {
      has_readers_elsewhere_ = true;
    } else if (reader != member_.position_) {
      readers_here_.push_back(reader);
    }
  }
  if (has_readers_elsewhere_ && MayShow()) heap_ = member_.HeapToShow();
}

// Members come to different answers: a reader sees what the first message is. What fits into one message is copied into
// it, in the cache, and its sender goes on.
bool Exchange::MayShow() const {
  return planned_.messages.size() > 1 && operands_.size() + results_.size() <= kShownMax &&
         std::ranges::all_of(planned_.messages,
                             [this](const Message& each) { return IsRead(each); });
}

bool Exchange::AreInHeap() const {
  const auto is_there = [this](std::span<const std::byte> each) {
    return heap_->OffsetOf(each).has_value();
  };
  bool are_there = std::ranges::all_of(results_, is_there);
  for (const auto& operand : operands_) {
    if (is_there(operand)) continue;
    are_there = false;
    member_.launch_->NoteOutsideHeap(operand.data());
  }
  return are_there;
}

absl::Status Exchange::ShowInHeap() {
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, member_.BeginMessage());
  std::byte* into = out.data();
  const auto add = [&](std::span<const std::byte> each) {
    const uint64_t offset = *heap_->OffsetOf(each);
    std::memcpy(into, &offset, sizeof(offset));
    into += sizeof(offset);
  };
  for (const auto& each : operands_) add(each);
  for (const auto& each : results_) add(each);
  member_.EndShowing(out, Key(0, false), role_.readers);
  return absl::OkStatus();
}

absl::Status Exchange::FindInHeap(Source& source) {
  std::vector<uint64_t> offsets(operands_.size() + results_.size());
  std::memcpy(offsets.data(), source.found.data, offsets.size() * sizeof(uint64_t));
  GANGWAY_RETURN_IF_ERROR(member_.CheckStays(source.position, source.found));
  const Place& place = member_.PlaceOf(source.position);
  source.operands.clear();
  source.results.clear();
  source.heap = place.peer->arena().heap();
  if (source.heap == nullptr && place.peer->is_gone()) return member_.AwaitGone(source.position);
  for (size_t i = 0; i < offsets.size(); ++i) {
    const bool is_operand = i < operands_.size();
    const size_t bytes =
        is_operand ? planned_.operand_bytes[i] : planned_.result_bytes[i - operands_.size()];
    const std::byte* const at =
        source.heap == nullptr ? nullptr : source.heap->At(offsets[i], bytes);
    if (at == nullptr) {
      return absl::InternalError(absl::StrCat(place.peer->name(), ", local device ", place.device,
                                              ", shows memory that is not in its heap"));
    }
    (is_operand ? source.operands : source.results).push_back(at);
  }
  return absl::OkStatus();
}

absl::Status Exchange::ConsumeShown() {
  bool any = false;
  for (const Source& source : sources_) {
    if (!source.is_far()) continue;
    GANGWAY_RETURN_IF_ERROR(member_.Consume(source.position, source.found));
    any = true;
  }
  if (any) member_.Wake(*role_.sources, Deed::kRead);
  return absl::OkStatus();
}

MessageKey Exchange::Key(size_t message, bool is_result) const {
  MessageKey key = key_;
  key.part = static_cast<uint32_t>(message * 2 + (is_result ? 1 : 0));
  return key;
}

bool Exchange::IsRead(const Message& message) const { return IsLarge(planned_, message); }

absl::Status Exchange::CheckOverlaps() const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    for (size_t j = 0; j < results_.size(); ++j) {
      const bool may_be_alike = kind() == Collective::RAGGED_ALL_TO_ALL
                                    ? i == kRaggedBefore
                                    : kind() == Collective::ALL_REDUCE && i == j;
      const bool in_place = may_be_alike && results_[j].data() == operands_[i].data();
      if (in_place || !Overlap(operands_[i], results_[j])) continue;
      return absl::InternalError(absl::StrCat(
          "collective ", member_.CollectiveName(), ": result ", j, " overlaps operand ", i,
          ", which other members may not have read yet. This is a defect of "
          "Gangway or of the plugin: please report the program"));
    }
  }
  return absl::OkStatus();
}

absl::Status Exchange::ExchangeAll() {
  const absl::Status status = SendAndReceive();
  LeaveSources();
  return status;
}

// Two messages are on their way before the first is awaited, and the parts of one are gathered when those of the next
// have been reduced: then others have seldom to be waited for. A device reads another one's messages in the order in
// which they were sent: operands 0 and 1, parts 0, operands 2, parts 1, operands 3. The same with rounds of parts from
// members that are read where they are.
absl::Status Exchange::SendAndReceive() {
  GANGWAY_RETURN_IF_ERROR(Send(0));
  GANGWAY_RETURN_IF_ERROR(Send(1));
  std::optional<size_t> message, round;  // whose parts are to be gathered
  for (size_t i = 0; i < planned_.messages.size(); ++i) {
    GANGWAY_RETURN_IF_ERROR(Receive(i));
    GANGWAY_RETURN_IF_ERROR(Send(i + 2));
    if (message) GANGWAY_RETURN_IF_ERROR(GatherSent(*message));
    message = planned_.messages[i].in_parts ? std::optional<size_t>(i) : std::nullopt;
    if (!EndsRound(i)) continue;
    if (round) GANGWAY_RETURN_IF_ERROR(GatherShown(*round));
    round = i;
  }
  if (message) GANGWAY_RETURN_IF_ERROR(GatherSent(*message));
  // Of parts, the last one that is read says that all has been.
  return round ? GatherShown(*round) : ConsumeShown();
}

void Exchange::LeaveSources() {
  std::vector<uint32_t> read;
  for (Source& source : sources_) {
    if (source.shown == nullptr) continue;
    std::exchange(source.shown, nullptr)->Leave(member_.device_->device_);
    read.push_back(source.position);
  }
  if (!read.empty()) member_.Wake(read, Deed::kRead);
}

absl::Status Exchange::AwaitReadersHere() {
  const Shown& shown = own_shown();
  for (uint32_t reader : readers_here_) {
    const Place& place = member_.PlaceOf(reader);
    GANGWAY_RETURN_IF_ERROR(
        member_.Await(place, {.deed = Deed::kRead}, [&] { return shown.IsReadBy(place.device); }));
  }
  return absl::OkStatus();
}

Shown& Exchange::own_shown() const {
  return member_.device_->arena_->shown(member_.device_->device_);
}

absl::Status Exchange::Send(size_t index) {
  if (role_.readers == nullptr || index >= planned_.messages.size()) return absl::OkStatus();
  const Message& message = planned_.messages[index];
  if (!IsSent(index)) return absl::OkStatus();
  if (shows_) return ShowInHeap();
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, member_.BeginMessage());
  for (const Segment& segment : message.segments)
    Pack(message, segment, out.data() + segment.offset);
  return member_.EndMessage(out, Key(index, false), role_.readers, ReachOf(message),
                            [&](size_t rank, std::vector<ByteRange>& ranges) {
                              for (const Segment& segment : message.segments) {
                                if (ragged_ && segment.operand == kRaggedRows)
                                  ragged_->AddNeeds(segment, rank, ranges);
                                else
                                  ranges.push_back(NeedOf(message, segment, rank));
                              }
                            });
}

// What the reader of this rank needs of a segment.
ByteRange Exchange::NeedOf(const Message& message, const Segment& segment, size_t rank) const {
  if (message.in_parts) {
    const ByteRange part = PartOf(segment, rank);
    return {segment.offset + part.offset, part.bytes};
  }
  if (SendsBlocks(kind(), segment.operand))
    return {segment.offset + rank * segment.stride, segment.bytes};
  return {segment.offset, segment.bytes};
}

void Exchange::Pack(const Message& message, const Segment& segment, std::byte* into) const {
  const std::byte* const operand = operands_[segment.operand].data();
  const auto each_reader = [&](auto pack) {
    for (size_t rank = 0; rank < role_.readers->size(); ++rank)
      if (IsPackedFor(message, rank)) pack(rank);
  };
  if (message.in_parts) {
    each_reader([&](size_t rank) {
      const ByteRange part = PartOf(segment, rank);
      std::memcpy(into + part.offset, operand + segment.begin + part.offset, part.bytes);
    });
    return;
  }
  switch (kind()) {
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
      return each_reader([&](size_t to) {
        const size_t each = piece(segment.operand);
        ForPieceRuns(segment, each, members(), to, [&](const PieceRuns& runs) {
          CopySpaced({into + to * segment.stride + runs.at, each},
                     {operand + runs.place, each * members()}, runs.bytes, runs.count);
        });
      });
    case Collective::ALL_TO_ALL_TUPLE:
      return each_reader([&](size_t to) {
        std::memcpy(into + to * segment.stride, operands_[to].data() + segment.begin,
                    segment.bytes);
      });
    case Collective::RAGGED_ALL_TO_ALL:
      return ragged_->Pack(segment, into);
    default:
      std::memcpy(into, operand + segment.begin, segment.bytes);
  }
}

absl::Status Exchange::Receive(size_t index) {
  const Message& message = planned_.messages[index];
  if (message.in_parts) return ReceiveInParts(index, message);
  if (role_.sources == nullptr) {  // no member sends to it
    for (const Segment& segment : message.segments)
      std::memset(results_[segment.operand].data() + segment.begin, 0, segment.bytes);
    return absl::OkStatus();
  }
  GANGWAY_RETURN_IF_ERROR(ReceiveFrom(index, message));
  if (ragged_) return ReceiveRagged(message);
  for (const Segment& segment : message.segments) Unpack(message, segment);
  return ConsumeAll(message);
}

// Lists that are wrong may be a message that its sender has written over: then that is the error.
absl::Status Exchange::ReceiveRagged(const Message& message) {
  absl::Status checked;
  for (const Segment& segment : message.segments) {
    const bool is_list = segment.operand != kRaggedRows;
    const size_t place = role_.rank * planned_.units[segment.operand] + segment.begin;
    for (size_t rank = 0; rank < sources_.size(); ++rank) {
      if (is_list)
        ragged_->TakeList(segment, rank, Block(message, segment, rank, 0, place));
      else
        ragged_->TakeRows(segment, rank, Whole(message, segment, rank));
    }
    if (ragged_->CompletesLists(segment)) checked = ragged_->CheckLists();
    if (!checked.ok()) break;
  }
  GANGWAY_RETURN_IF_ERROR(ConsumeAll(message));
  return checked;
}

// First of the one that this device last slept for: by then the others have mostly come, so a device sleeps once for
// all of them, not once for each that is late.
absl::Status Exchange::ReceiveFrom(size_t index, const Message& message) {
  const auto late = std::ranges::find(
      sources_, member_.device_->slept_for_,
      [&](const Source& each) { return member_.PlaceOf(each.position).number(); });
  if (late != sources_.end()) GANGWAY_RETURN_IF_ERROR(FindBytes(*late, index, message));
  for (auto source = sources_.begin(); source != sources_.end(); ++source)
    if (source != late) GANGWAY_RETURN_IF_ERROR(FindBytes(*source, index, message));
  member_.has_met_ = true;
  return absl::OkStatus();
}

absl::Status Exchange::FindBytes(Source& source, size_t index, const Message& message) {
  const bool is_read = IsRead(message);
  if (is_read && source.is_direct()) return absl::OkStatus();
  const Place& place = member_.PlaceOf(source.position);
  if (is_read && member_.IsHere(place)) {
    Shown& shown = place.peer->arena().shown(place.device);
    GANGWAY_RETURN_IF_ERROR(member_.Await(
        place, {.key = key_}, [&] { return shown.Enter(key_, member_.device_->device_); }));
    source.shown = &shown;
    return absl::OkStatus();
  }
  GANGWAY_ASSIGN_OR_RETURN(source.found, member_.Receive(source.position, Key(index, false)));
  return source.found.shows ? FindInHeap(source) : absl::OkStatus();
}

absl::Status Exchange::ConsumeAll(const Message& message) {
  const bool is_read = IsRead(message);
  bool has_messages = false;
  for (const Source& source : sources_) {
    if (is_read && source.is_far()) GANGWAY_RETURN_IF_ERROR(member_.CheckShown(source.position));
    if (is_read && source.is_direct()) continue;
    GANGWAY_RETURN_IF_ERROR(member_.Consume(source.position, source.found));
    has_messages = true;
  }
  if (has_messages) member_.Wake(*role_.sources, Deed::kRead);
  return absl::OkStatus();
}

const std::byte* Exchange::Whole(const Message& message, const Segment& segment,
                                 size_t rank) const {
  const Source& source = sources_[rank];
  if (IsRead(message) && source.is_direct())
    return operand(source, segment.operand) + segment.begin;
  return source.found.data + segment.offset;
}

const std::byte* Exchange::Block(const Message& message, const Segment& segment, size_t rank,
                                 size_t at, size_t place) const {
  const Source& source = sources_[rank];
  if (IsRead(message) && source.is_direct()) return operand(source, segment.operand) + place;
  return source.found.data + segment.offset + role_.rank * segment.stride + at;
}

void Exchange::Unpack(const Message& message, const Segment& segment) const {
  std::byte* const result = results_[segment.operand].data();
  switch (kind()) {
    case Collective::ALL_REDUCE:
      return Reduce(segment, segment.bytes, result + segment.begin,
                    [&](size_t rank) { return Whole(message, segment, rank); });
    case Collective::ALL_GATHER:
      for (size_t from = 0; from < sources_.size(); ++from) {
        const size_t each = piece(segment.operand);
        const std::byte* const data = Whole(message, segment, from);
        ForPieceRuns(segment, each, members(), from, [&](const PieceRuns& runs) {
          CopyResults({result + runs.place, each * members()}, {data + runs.at, each}, runs);
        });
      }
      return;
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
    case Collective::ALL_TO_ALL_TUPLE:
      return UnpackBlocks(message, segment);
    default:
      CopyResult(result + segment.begin, Whole(message, segment, 0), segment.bytes);
  }
}

void Exchange::UnpackBlocks(const Message& message, const Segment& segment) const {
  std::byte* const result = results_[segment.operand].data();
  if (kind() == Collective::ALL_TO_ALL_TUPLE) {
    for (size_t from = 0; from < sources_.size(); ++from) {
      const Source& source = sources_[from];
      const bool is_read = IsRead(message) && source.is_direct();
      CopyResult(results_[from].data() + segment.begin,
                 is_read ? operand(source, role_.rank) + segment.begin
                         : source.found.data + segment.offset + role_.rank * segment.stride,
                 segment.bytes);
    }
    return;
  }
  const size_t each = piece(segment.operand), distance = each * members();
  ForPieceRuns(segment, each, members(), role_.rank, [&](const PieceRuns& runs) {
    if (kind() == Collective::ALL_TO_ALL) {
      for (size_t from = 0; from < sources_.size(); ++from) {
        const bool is_read = IsRead(message) && sources_[from].is_direct();
        CopyResults({result + runs.place + from * each - role_.rank * each, distance},
                    {Block(message, segment, from, runs.at, runs.place), is_read ? distance : each},
                    runs);
      }
      return;
    }
    for (size_t i = 0; i < runs.count; ++i) {
      const size_t at = runs.at + i * each, place = runs.place + i * distance;
      Reduce(segment, runs.bytes, result + segment.begin + at,
             [&](size_t rank) { return Block(message, segment, rank, at, place); });
    }
  });
}

// In the group's order.
void Exchange::Reduce(const Segment& segment, size_t bytes, std::byte* into,
                      BytesOf bytes_of) const {
  const Reduction reduction =
      FindReduction(planned_.meaning.reduction(),
                    planned_.meaning.operands(static_cast<int>(segment.operand)).element_type());
  absl::InlinedVector<const std::byte*, 16> sources;
  for (size_t rank = 0; rank < sources_.size(); ++rank) sources.push_back(bytes_of(rank));
  const ReductionMode mode;
  reduction.reducer(into, sources, bytes);
}

// A large operand: this member reduces its part of the message, and passes that on.
absl::Status Exchange::ReceiveInParts(size_t index, const Message& message) {
  const Segment& segment = message.segments[0];
  GANGWAY_RETURN_IF_ERROR(ReceiveFrom(index, message));
  const ByteRange own = PartOf(segment, role_.rank);
  Reduce(segment, own.bytes, results_[segment.operand].data() + segment.begin + own.offset,
         [&](size_t rank) { return Whole(message, segment, rank) + own.offset; });
  GANGWAY_RETURN_IF_ERROR(ConsumeAll(message));
  return SendPart(index, segment, own);
}

absl::Status Exchange::SendPart(size_t index, const Segment& segment, const ByteRange& own) {
  if (EndsRound(index) && !readers_here_.empty()) {
    own_shown().SetReduced(index + 1);
    member_.Wake(readers_here_, Deed::kWritten);
  }
  if (!has_readers_elsewhere_ || (shows_ && !EndsRound(index))) return absl::OkStatus();
  GANGWAY_ASSIGN_OR_RETURN(const MessageWriter out, member_.BeginMessage());
  if (shows_) {
    member_.EndShowing(out, Key(index, true), role_.readers);
    return absl::OkStatus();
  }
  std::memcpy(out.data(), results_[segment.operand].data() + segment.begin + own.offset, own.bytes);
  return member_.EndMessage(
      out, Key(index, true), role_.readers, Reach::kElsewhere,
      [&](size_t, std::vector<ByteRange>& ranges) { ranges.push_back({0, own.bytes}); });
}

bool Exchange::EndsRound(size_t index) const {
  const auto is_in_parts = [this](size_t i) {
    return i < planned_.messages.size() && planned_.messages[i].in_parts;
  };
  return is_in_parts(index) && ((index + 1) % kRoundMessages == 0 || !is_in_parts(index + 1));
}

// Those of the members that send them.
absl::Status Exchange::GatherSent(size_t index) {
  bool any = false;
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    const Source& source = sources_[rank];
    if (source.is_direct()) continue;
    GANGWAY_ASSIGN_OR_RETURN(const Member::Found found,
                             member_.Receive(source.position, Key(index, true)));
    CopyPart(index, rank, found.data);
    GANGWAY_RETURN_IF_ERROR(member_.Consume(source.position, found));
    any = true;
  }
  if (any) member_.Wake(*role_.sources, Deed::kRead);
  return absl::OkStatus();
}

// Those of the others, of a round with this last message.
absl::Status Exchange::GatherShown(size_t last) {
  bool any_far = false;
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    const Source& source = sources_[rank];
    if (source.is_self || !source.is_direct()) continue;
    std::optional<Member::Found> found;
    if (source.is_far()) {
      GANGWAY_ASSIGN_OR_RETURN(found, member_.Receive(source.position, Key(last, true)));
    } else {
      GANGWAY_RETURN_IF_ERROR(member_.Await(member_.PlaceOf(source.position), {.key = key_},
                                            [&] { return source.shown->reduced() > last; }));
    }
    for (size_t i = last;; --i) {
      const Segment& segment = planned_.messages[i].segments[0];
      CopyPart(i, rank,
               result(source, segment.operand) + segment.begin + PartOf(segment, rank).offset);
      if (i == 0 || EndsRound(i - 1) || !planned_.messages[i - 1].in_parts) break;
    }
    if (!found) continue;
    GANGWAY_RETURN_IF_ERROR(member_.CheckShown(source.position));
    GANGWAY_RETURN_IF_ERROR(member_.Consume(source.position, *found));
    any_far = true;
  }
  if (any_far) member_.Wake(*role_.sources, Deed::kRead);
  return absl::OkStatus();
}

void Exchange::CopyPart(size_t index, size_t rank, const std::byte* from) const {
  const Segment& segment = planned_.messages[index].segments[0];
  const ByteRange part = PartOf(segment, rank);
  CopyResult(results_[segment.operand].data() + segment.begin + part.offset, from, part.bytes);
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

// Of a segment that is reduced in parts: the part of the member of this rank.
ByteRange Exchange::PartOf(const Segment& segment, size_t rank) const {
  const size_t least = (segment.bytes + role_.sources->size() - 1) / role_.sources->size();
  const size_t part = (least + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
  const size_t begin = std::min(rank * part, segment.bytes);
  return {begin, std::min(part, segment.bytes - begin)};
}

}  // namespace gangway::collective
