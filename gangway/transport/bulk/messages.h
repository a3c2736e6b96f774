// The pieces of shards as messages of a link, and back.
#ifndef GANGWAY_TRANSPORT_BULK_MESSAGES_H_
#define GANGWAY_TRANSPORT_BULK_MESSAGES_H_

#include <string>

#include "gangway/transport/bulk/outgoing_shard.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/bulk/shard_piece.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

// Writes the step of `shard` into a message that names the shard. `proof`: of a copied shard. Not for kWritten, which
// needs no message.
inline void PutStep(const OutgoingShard& shard, const OutgoingShard::Step& step, wire::Bulk& bulk,
                    const std::string& proof = "") {
  switch (step.way) {
    case OutgoingShard::Way::kBytes: {
      wire::ShardBytes& bytes = *bulk.mutable_bytes();
      bytes.set_offset(step.piece.offset);
      bytes.set_total(step.piece.total);
      bytes.set_last(step.piece.last);
      if (step.piece.offset == 0) bytes.set_proof(proof);
      bytes.set_data(reinterpret_cast<const char*>(step.bytes.data()), step.bytes.size());
      return;
    }
    case OutgoingShard::Way::kWritten:
      return;
    case OutgoingShard::Way::kPlaced:
      return bulk.mutable_placed()->set_proof(proof);
    case OutgoingShard::Way::kLent:
      *bulk.mutable_lent() = NameOf(*shard.block(), shard.size());
      return;
    case OutgoingShard::Way::kFailed:
      *bulk.mutable_failed() = shard.failure();
  }
}

inline ShardPiece PieceOf(const wire::ShardBytes& bytes) {
  return {.offset = bytes.offset(),
          .size = bytes.data().size(),
          .total = bytes.total(),
          .last = bytes.last()};
}

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_MESSAGES_H_
