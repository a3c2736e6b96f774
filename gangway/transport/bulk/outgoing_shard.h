// OutgoingShard: a shard on its way out, in whichever way it leaves: in pieces over the link, written into memory of
// the other end, lent to the other end, or as its failure. The owner sends what Next returns, and calls Advance once
// the link has taken it; until then Next returns the same.
//
// It reads the bytes, which the owner keeps valid, and knows no link. Not thread-safe.
#ifndef GANGWAY_TRANSPORT_BULK_OUTGOING_SHARD_H_
#define GANGWAY_TRANSPORT_BULK_OUTGOING_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "gangway/transport/bulk/shard_piece.h"
#include "gangway/transport/shm/shared_pool.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

class OutgoingShard {
 public:
  enum class Way : uint8_t {
    kBytes,    // send these bytes
    kWritten,  // a piece is in the other end's memory: nothing to send
    kPlaced,   // say that all bytes are in the agreed place
    kLent,     // say in which block of this process all bytes are
    kFailed,   // say why no more bytes come
  };
  struct Step {
    Way way = Way::kBytes;
    ShardPiece piece;
    std::span<const std::byte> bytes;  // of kBytes
  };

  OutgoingShard() = default;  // of no bytes
  explicit OutgoingShard(std::span<const std::byte> bytes) : bytes_(bytes), size_(bytes.size()) {}
  // Its `size` bytes are in the agreed place already.
  static OutgoingShard Placed(size_t size);
  static OutgoingShard Failed(wire::Failure why);

  // Before the first piece. Null: the bytes go over the link. At `target`, which may be where the bytes are, is room
  // for all of them.
  void WriteInto(std::shared_ptr<std::byte> target) { target_ = std::move(target); }
  // Likewise. The block holds the bytes.
  void Lend(std::shared_ptr<SharedBlock> block) { block_ = std::move(block); }

  // What to do next: of at most `bytes_max` bytes, unless all bytes are in place already. Writes kWritten and kPlaced
  // pieces. Requires !done().
  Step Next(size_t bytes_max) const;
  void Advance(const Step& step);

  bool begun() const { return offset_ != 0; }
  bool done() const { return done_; }
  size_t offset() const { return offset_; }  // of the bytes that have left
  size_t size() const { return size_; }
  const wire::Failure& failure() const { return failure_; }
  const std::shared_ptr<std::byte>& target() const { return target_; }  // null: none
  const std::shared_ptr<SharedBlock>& block() const { return block_; }  // null: not to be lent

 private:
  std::span<const std::byte> bytes_;
  size_t size_ = 0;
  size_t offset_ = 0;
  bool done_ = false;
  bool placed_ = false;  // from the start
  std::shared_ptr<std::byte> target_;
  std::shared_ptr<SharedBlock> block_;
  wire::Failure failure_;  // code 0: none
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_OUTGOING_SHARD_H_
