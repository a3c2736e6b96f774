// Shards that come together, each of an agreed size. Those for which a block is lent come in it, if the other end can
// write there; then the others follow over the link, one behind the other, without gaps. If the other end cannot write
// to every block, all of them come over the link. Each shard gets memory of its own, so it can be freed alone.
//
// After an error the shards are of no use; their owner drops them. The other end is not trusted: no sum of its sizes
// can wrap. Not thread-safe.
#ifndef GANGWAY_TRANSPORT_BULK_INCOMING_BATCH_H_
#define GANGWAY_TRANSPORT_BULK_INCOMING_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/aligned_bytes.h"
#include "gangway/transport/bulk/incoming_shard.h"
#include "gangway/transport/bulk/lent_block.h"
#include "gangway/transport/bulk/shard_piece.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::transport {

class IncomingBatch {
 public:
  using Charge = StagedShard::Charge;
  using Bytes = StagedShard::Bytes;

  IncomingBatch() = default;
  explicit IncomingBatch(std::vector<size_t> sizes);

  size_t count() const { return shards_.size(); }
  size_t size_of(size_t shard) const { return shards_[shard].size; }

  // Before the request: the other end may write the shard into this block, of its size at least, from now on.
  void Lend(size_t shard, std::shared_ptr<SharedBlock> block);

  // What has a block is in it. INVALID_ARGUMENT: nothing has one, or something has come already.
  absl::Status Place();
  // A piece of what comes over the link. Before Place, it is of all shards: the other end has written to no block.
  // INVALID_ARGUMENT: see IncomingShard. RESOURCE_EXHAUSTED: the system has no memory. Or the error of `charge`, which
  // is asked once, for all bytes that come over the link.
  absl::Status Take(const ShardPiece& piece, std::string_view bytes, const Charge& charge);

  bool begun() const { return placed_ || incoming_.begun(); }
  bool complete() const;
  uint64_t placed_bytes() const { return placed_ ? lent_bytes_ : 0; }

  // By shard. Once complete.
  std::vector<Bytes> TakeBytes();

 private:
  struct Shard {
    size_t size = 0;
    LentBlock lent;
    std::shared_ptr<SharedBlock> placed;
    AlignedBytes bytes;  // if it comes over the link
  };

  absl::Status Begin(const Charge& charge);
  void Store(std::string_view bytes);

  std::vector<Shard> shards_;
  uint64_t bytes_ = 0;       // of all shards
  uint64_t lent_bytes_ = 0;  // of those with a block
  size_t lent_ = 0;          // how many these are
  bool placed_ = false;
  IncomingShard incoming_;  // the bytes that come over the link
  size_t next_ = 0;         // the shard that gets the next ones
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_INCOMING_BATCH_H_
