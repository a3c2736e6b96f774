// A piece of one shard, without its bytes: what the two ends of a bulk link agree on.
#ifndef GANGWAY_TRANSPORT_BULK_SHARD_PIECE_H_
#define GANGWAY_TRANSPORT_BULK_SHARD_PIECE_H_

#include <cstdint>

namespace gangway::transport {

struct ShardPiece {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t total = 0;  // of the shard, on its first piece; 0: untold
  bool last = false;   // it completes the shard
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_SHARD_PIECE_H_
