// The pieces of shards as messages of a link, and back.
#ifndef GANGWAY_TRANSPORT_BULK_MESSAGES_H_
#define GANGWAY_TRANSPORT_BULK_MESSAGES_H_

#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/bulk/shard_piece.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

// Writes the step of `shard` into a chunk that names the shard. Not for kWritten, which needs no message.
inline void PutStep(const OutgoingShard& shard, const OutgoingShard::Step& step,
                    wire::DataChunk& chunk) {
  using Way = OutgoingShard::Way;
  if (step.way == Way::kPlaced) chunk.set_placed(true);
  if (step.way == Way::kLent) *chunk.mutable_place() = NameOf(*shard.block(), shard.size());
  if (step.way == Way::kFailed) *chunk.mutable_failure() = shard.failure();
  chunk.set_last(step.piece.last);
  if (step.way != Way::kBytes) return;
  chunk.set_offset(step.piece.offset);
  chunk.set_total(step.piece.total);
  chunk.set_data(reinterpret_cast<const char*>(step.bytes.data()), step.bytes.size());
}

inline ShardPiece PieceOf(const wire::DataChunk& chunk) {
  return {.offset = chunk.offset(),
          .size = chunk.data().size(),
          .total = chunk.total(),
          .last = chunk.last()};
}

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_MESSAGES_H_
