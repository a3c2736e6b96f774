// Implementation of sender.h.
#include "gangway/collective/execution/sender.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gangway/base/status.h"

namespace gangway::collective {
namespace {

// Ranges that are next to each other, or overlap, as one.
std::vector<ByteRange> Joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> joined;
  for (const ByteRange& range : ranges) {
    if (range.bytes == 0) continue;
    const size_t end = joined.empty() ? 0 : joined.back().offset + joined.back().bytes;
    if (joined.empty() || range.offset > end + kSegmentAlignment) {
      joined.push_back(range);
    } else {
      joined.back().bytes = std::max(end, range.offset + range.bytes) - joined.back().offset;
    }
  }
  return joined;
}

}  // namespace

SentMessage Sender::Describe(uint64_t sequence, const PositionList& readers,
                             Audience audience) const {
  const Launch& launch = waiter_.launch();
  return {.sequence = sequence,
          .readers = readers,
          .audience = audience,
          .gang = launch.gang().order,
          .devices = launch.devices(),
          .is_aborted = launch.abort_flag()};
}

bool Sender::IsRead(const PeerDevice& reader, const SentMessage& sent) const {
  const Region& region = reader.region();
  return IsReadUpTo(region.consumed[device_.number()].load(std::memory_order_acquire),
                    sent.sequence) ||
         region.left.load(std::memory_order_acquire) >= sent.gang ||
         sent.is_aborted->load(
             std::memory_order_acquire) ||  // readers know that it may be written over
         reader.peer->is_gone();
}

absl::Status Sender::AwaitRead(const PeerDevice& reader, const SentMessage& sent) {
  return waiter_.Await(reader,
                       {.deed = Deed::kRead, .key = {.gang = sent.gang}, .sequence = sent.sequence},
                       [&] { return IsRead(reader, sent); });
}

absl::StatusOr<MessageWriter> Sender::BeginMessage() {
  SentMessage& before = device_.sent().before_next();
  if (before.devices != nullptr) {
    for (uint32_t position : *before.readers) {
      const PeerDevice& reader = (*before.devices)[position];
      if (reader.number() == device_.number()) continue;
      if (before.audience == Audience::kOtherWorkers && waiter_.IsHere(reader)) continue;
      GANGWAY_RETURN_IF_ERROR(AwaitRead(reader, before));
    }
    if (before.is_aborted->load(std::memory_order_acquire)) device_.FailLate(before.gang);
    before = {};
  }
  // The readers of an aborted launch are not waited for, so without this its operands would go to couriers at once.
  if (waiter_.launch().is_aborted()) return waiter_.launch().reason();
  return MessageWriter(device_.region(), device_.sent().next());
}

absl::Status Sender::EndMessage(const MessageWriter& message, const MessageKey& key,
                                const PositionList& readers, Audience audience, NeedOf need) {
  message.Publish(key);
  device_.sent().Add(Describe(device_.sent().next(), readers, audience));
  waiter_.Wake(*readers, Deed::kWritten);
  return waiter_.launch().needs_couriers() ? SendByCourier(message, key, readers, need)
                                           : absl::OkStatus();
}

void Sender::EndShowing(const MessageWriter& message, const MessageKey& key,
                        const PositionList& readers) {
  message.Publish(key, /*shows=*/true);
  device_.sent().Add(Describe(device_.sent().next(), readers, Audience::kOtherWorkers));
  waiter_.Wake(*readers, Deed::kWritten);
}

void Sender::Hide() const {
  device_.region().hidden.store(waiter_.launch().gang().order, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

absl::Status Sender::AwaitReadersElsewhere(const PositionList& readers) {
  const SentMessage last = Describe(device_.sent().last(), readers, Audience::kOtherWorkers);
  for (uint32_t position : *readers) {
    const PeerDevice& reader = waiter_.DeviceOf(position);
    if (waiter_.IsHere(reader)) continue;
    GANGWAY_RETURN_IF_ERROR(AwaitRead(reader, last));
  }
  return waiter_.launch().reason();
}

// To each worker once, what its readers need together.
absl::Status Sender::SendByCourier(const MessageWriter& message, const MessageKey& key,
                                   const PositionList& readers, NeedOf need) {
  struct Needed {
    const PeerDevice* device = nullptr;  // one of its readers
    std::vector<ByteRange> ranges;
  };
  std::map<uint32_t, Needed> needed;  // by worker, so that the order is the same in every run
  for (size_t rank = 0; rank < readers->size(); ++rank) {
    const PeerDevice& device = waiter_.DeviceOf((*readers)[rank]);
    if (device.shares_memory()) continue;
    Needed& of = needed[device.peer->index()];
    of.device = &device;
    need(rank, of.ranges);
  }
  for (auto& [worker, of] : needed) {
    const Published published{.device = device_.index(),
                              .sequence = device_.sent().last(),
                              .key = key,
                              .ranges = Joined(std::move(of.ranges)),
                              .data = message.data()};
    const absl::Status sent = device_.reads().Send(*of.device->peer, published);
    if (absl::IsUnavailable(sent)) return waiter_.AwaitReason(*of.device, sent);
    GANGWAY_RETURN_IF_ERROR(sent);
  }
  return absl::OkStatus();
}

}  // namespace gangway::collective
