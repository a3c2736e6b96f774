// Implementation of source.h.
#include "gangway/collective/execution/source.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::collective {

absl::StatusOr<MessageReader::Found> MessageReader::Receive(uint32_t source,
                                                            const MessageKey& key) {
  const PeerDevice& device = waiter_.DeviceOf(source);
  const Region& region = device.region();
  Found found;
  GANGWAY_RETURN_IF_ERROR(waiter_.Await(device, {.key = key}, [&] {
    for (size_t slot = 0; slot < kSlots; ++slot) {
      const Region::Header& header = region.headers[slot];
      const uint64_t sequence = header.sequence.load(std::memory_order_acquire);
      if (sequence == 0 || !IsOf(header, key)) continue;
      const bool shows = header.shows.load(std::memory_order_relaxed) != 0;
      std::atomic_thread_fence(std::memory_order_acquire);
      if (header.sequence.load(std::memory_order_relaxed) != sequence) continue;
      found = {region.data[slot].data(), &header, sequence, shows};
      return true;
    }
    return false;
  }));
  return found;
}

absl::Status MessageReader::CheckStays(uint32_t source, const Found& found) {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (found.header->sequence.load(std::memory_order_relaxed) == found.sequence)
    return absl::OkStatus();
  return waiter_.AwaitGone(source);
}

absl::Status MessageReader::OutOfOrder(uint32_t source) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "collective ", waiter_.CollectiveName(), ": position ", source,
      " ran it before another one that position ", call_.position,
      " has run already; all positions must run a program's collectives in one order"));
}

absl::Status MessageReader::Consume(uint32_t source, const Found& found) {
  GANGWAY_RETURN_IF_ERROR(CheckStays(source, found));
  has_consumed_ = true;
  LocalDevice& own = waiter_.device();
  const PeerDevice& device = waiter_.DeviceOf(source);
  if (device.number() == own.number()) return absl::OkStatus();
  std::atomic<uint64_t>& consumed = own.region().consumed[device.number()];
  // A source has no more messages than slots, so one that was read too early is not far ahead. A larger distance is to
  // the number of an earlier process of the source.
  const uint64_t later = consumed.load(std::memory_order_relaxed) - found.sequence;
  if (later != 0 && later < kSlots) return OutOfOrder(source);
  consumed.store(found.sequence, std::memory_order_release);
  return absl::OkStatus();
}

void MessageReader::TellReads() {
  if (std::exchange(has_consumed_, false)) waiter_.Wake(*call_.role.sources, Deed::kRead);
}

absl::Status SlotSource::Await(size_t message) {
  GANGWAY_ASSIGN_OR_RETURN(
      found_, reader_->Receive(position_, reader_->call().Key(message, Call::Content::kOperands)));
  return absl::OkStatus();
}

const std::byte* SlotSource::Whole(const Segment& segment) const {
  return found_.data + segment.offset;
}

const std::byte* SlotSource::Block(const Segment& segment, size_t at, size_t /*offset*/) const {
  return found_.data + segment.offset + reader_->call().role.rank * segment.stride + at;
}

absl::Status SlotSource::AwaitPart(size_t message) {
  GANGWAY_ASSIGN_OR_RETURN(
      found_, reader_->Receive(position_, reader_->call().Key(message, Call::Content::kPart)));
  return absl::OkStatus();
}

const std::byte* SlotSource::Part(const Segment& /*segment*/, const ByteRange& /*part*/) const {
  return found_.data;
}

absl::Status MirrorSource::Consume() {
  GANGWAY_RETURN_IF_ERROR(SlotSource::Consume());
  Waiter& waiter = reader().waiter();
  const PeerDevice& device = waiter.DeviceOf(position());
  waiter.device().reads().Note(device.peer, device.device, found().sequence);
  return absl::OkStatus();
}

const std::byte* DirectSource::Block(const Segment& segment, size_t /*at*/, size_t offset) const {
  const bool is_tuple = call_.kind() == xla::Collective::ALL_TO_ALL_TUPLE;
  return operand(is_tuple ? call_.role.rank : segment.operand) + offset;
}

ShownSource::ShownSource(Waiter& waiter, const Call& call, uint32_t position)
    : DirectSource(call),
      waiter_(waiter),
      device_(waiter.DeviceOf(position)),
      shown_(device_.peer->arena().shown(device_.device)) {}

absl::Status ShownSource::Await(size_t /*message*/) {
  if (has_entered_) return absl::OkStatus();
  GANGWAY_RETURN_IF_ERROR(waiter_.Await(device_, {.key = call().key}, [&] {
    return shown_.Enter(call().key, waiter_.device().index());
  }));
  has_entered_ = true;
  return absl::OkStatus();
}

absl::Status ShownSource::AwaitPart(size_t message) {
  return waiter_.Await(device_, {.key = call().key}, [&] { return shown_.reduced() > message; });
}

bool ShownSource::Leave() {
  if (!std::exchange(has_entered_, false)) return false;
  shown_.Leave(waiter_.device().index());
  return true;
}

absl::StatusOr<std::unique_ptr<HeapSource>> HeapSource::Make(const SlotSource& slot) {
  std::unique_ptr<HeapSource> source(new HeapSource(slot));
  const Call& call = slot.reader().call();
  Waiter& waiter = slot.reader().waiter();
  std::vector<uint64_t> offsets(call.operands.size() + call.results.size());
  std::memcpy(offsets.data(), slot.found().data, offsets.size() * sizeof(uint64_t));
  GANGWAY_RETURN_IF_ERROR(slot.reader().CheckStays(slot.position(), slot.found()));
  const PeerDevice& device = waiter.DeviceOf(slot.position());
  source->heap_ = device.peer->arena().heap();
  if (source->heap_ == nullptr && device.peer->is_gone()) return waiter.AwaitGone(slot.position());
  for (size_t i = 0; i < offsets.size(); ++i) {
    const bool is_operand = i < call.operands.size();
    const size_t bytes = is_operand ? call.planned.operand_bytes[i]
                                    : call.planned.result_bytes[i - call.operands.size()];
    const std::byte* const at =
        source->heap_ == nullptr ? nullptr : source->heap_->At(offsets[i], bytes);
    if (at == nullptr) {
      return absl::InternalError(absl::StrCat(device.peer->name(), ", local device ", device.device,
                                              ", shows memory that is not in its heap"));
    }
    (is_operand ? source->operands_ : source->results_).push_back(at);
  }
  return source;
}

absl::Status HeapSource::CheckShown() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Waiter& waiter = shows_.reader().waiter();
  const PeerDevice& device = waiter.DeviceOf(shows_.position());
  if (device.region().hidden.load(std::memory_order_seq_cst) < waiter.launch().gang().order)
    return absl::OkStatus();
  return waiter.AwaitGone(shows_.position());
}

absl::Status HeapSource::EndMessages() { return shows_.EndMessage(); }

absl::Status HeapSource::EndPart() {
  GANGWAY_RETURN_IF_ERROR(CheckShown());
  return reports_.EndPart();
}

}  // namespace gangway::collective
