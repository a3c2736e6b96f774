// A shard on its way in. IncomingShard checks that its pieces come in order and are what was agreed, wherever their
// bytes go. StagedShard is one whose bytes land in this process: in private memory that its owner charges (TM-2), or
// in a block that the other end writes. After an error a shard is of no use; its owner drops it.
//
// The other end is not trusted: no sum of its sizes can wrap. Not thread-safe.
#ifndef GANGWAY_TRANSPORT_BULK_INCOMING_SHARD_H_
#define GANGWAY_TRANSPORT_BULK_INCOMING_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/aligned_bytes.h"
#include "gangway/transport/bulk/lent_block.h"
#include "gangway/transport/bulk/shard_piece.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::transport {

class IncomingShard {
 public:
  // `size`: what was agreed; none: the first piece may tell it.
  explicit IncomingShard(std::optional<uint64_t> size = std::nullopt) : size_(size) {}

  // INVALID_ARGUMENT, with the sizes: the piece is out of order, does not fit, is of another size than was told, or
  // follows the last one.
  absl::Status Take(const ShardPiece& piece);
  // All bytes are in one place, which was agreed on or lent. INVALID_ARGUMENT: pieces have come, or it is complete.
  absl::Status Place();

  bool begun() const { return begun_; }
  bool complete() const { return complete_; }
  uint64_t received() const { return received_; }  // bytes, in pieces
  // Bytes in all: what was agreed or told, else those of the pieces so far.
  uint64_t size() const { return size_.value_or(received_); }
  bool knows_size() const { return size_.has_value(); }

 private:
  std::optional<uint64_t> size_;
  uint64_t received_ = 0;
  bool begun_ = false;
  bool complete_ = false;
};

class StagedShard {
 public:
  // Called before the shard takes more private memory, with the bytes that it adds. An error ends the shard.
  using Charge = std::function<absl::Status(uint64_t bytes)>;
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  explicit StagedShard(std::optional<uint64_t> size = std::nullopt) : incoming_(size) {}

  // The other end may write into the block from now on.
  void Lend(std::shared_ptr<SharedBlock> block) { lent_ = LentBlock(std::move(block)); }
  bool lends() const { return static_cast<bool>(lent_); }

  // A piece whose bytes came over the link. A block that was lent is retired: the other end may still write it.
  // INVALID_ARGUMENT: see IncomingShard. RESOURCE_EXHAUSTED: the system has no memory. Or the error of `charge`.
  absl::Status Take(const ShardPiece& piece, std::string_view bytes, const Charge& charge);
  // All bytes are in the block. INVALID_ARGUMENT: none is lent.
  absl::Status Place();

  bool begun() const { return incoming_.begun(); }
  bool complete() const { return incoming_.complete(); }
  size_t size() const { return placed_ != nullptr ? placed_->bytes().size() : bytes_.size(); }
  // The bytes that have come; nothing of a block that is not placed.
  Bytes TakeBytes();

 private:
  IncomingShard incoming_;
  uint64_t charged_ = 0;
  AlignedBytes bytes_;
  LentBlock lent_;
  std::shared_ptr<SharedBlock> placed_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_INCOMING_SHARD_H_
