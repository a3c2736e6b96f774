// Implementation of collective_frames.h.
#include "gangway/worker/service/collective/collective_frames.h"

#include "gangway/base/status.h"
#include "gangway/transport/bulk/byte_ranges.h"

namespace gangway::worker {
namespace {

using collective::LeftUpTo;
using collective::Published;
using collective::ReadUpTo;

void Fill(const Published& from, wire::Published& to) {
  to.set_device(from.device);
  to.set_sequence(from.sequence);
  to.set_gang(from.key.gang);
  to.set_number(from.key.number);
  to.set_round(from.key.round);
  to.set_part(from.key.part);
  for (const transport::ByteRange& range : from.ranges) {
    to.add_offsets(static_cast<uint32_t>(range.offset));
    to.add_sizes(static_cast<uint32_t>(range.bytes));
  }
  to.set_data(transport::Gather(from.data, from.ranges));
}

absl::Status Take(const wire::Published& from, collective::Mirror& mirror,
                  const collective::Arena& own) {
  Published message{.device = from.device(),
                    .sequence = from.sequence(),
                    .key = {from.gang(), from.number(), from.round(), from.part()}};
  if (from.offsets_size() != from.sizes_size())
    return absl::InvalidArgumentError("a message's ranges are not whole");
  for (int i = 0; i < from.offsets_size(); ++i)
    message.ranges.push_back({from.offsets(i), from.sizes(i)});
  return mirror.Take(message, std::as_bytes(std::span(from.data())), own);
}

}  // namespace

wire::Bulk ToBulk(const Published* message, std::span<const ReadUpTo> reads) {
  wire::Bulk bulk;
  if (message != nullptr) Fill(*message, *bulk.mutable_published());
  auto& said = message != nullptr ? *bulk.mutable_published()->mutable_reads()
                                  : *bulk.mutable_progress()->mutable_reads();
  for (const ReadUpTo& each : reads) {
    wire::DeviceRead& read = *said.Add();
    read.set_device(each.device);
    read.set_source(each.source);
    read.set_sequence(each.sequence);
  }
  return bulk;
}

wire::Bulk ToBulk(std::span<const LeftUpTo> lefts) {
  wire::Bulk bulk;
  for (const LeftUpTo& each : lefts) {
    wire::DeviceLeft& left = *bulk.mutable_progress()->add_left();
    left.set_device(each.device);
    left.set_gang(each.order);
    left.set_failed(each.failed);
  }
  return bulk;
}

absl::Status Take(const wire::Bulk& bulk, collective::Mirror& mirror, const collective::Arena& own,
                  uint32_t local) {
  if (!bulk.has_published() && !bulk.has_progress())
    return absl::InvalidArgumentError("it has sent what is not of collectives on their stream");
  if (bulk.has_published()) GANGWAY_RETURN_IF_ERROR(Take(bulk.published(), mirror, own));
  for (const auto& read :
       bulk.has_published() ? bulk.published().reads() : bulk.progress().reads()) {
    GANGWAY_RETURN_IF_ERROR(
        mirror.Take(ReadUpTo{read.device(), read.source(), read.sequence()}, own, local));
  }
  for (const auto& left : bulk.progress().left())
    GANGWAY_RETURN_IF_ERROR(mirror.Take(LeftUpTo{left.device(), left.gang(), left.failed()}, own));
  return absl::OkStatus();
}

}  // namespace gangway::worker
