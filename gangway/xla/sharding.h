// Arithmetic of XLA shardings: how one array of a global shape is spread over n logical positions.
//
// Sharding is an immutable value, made from the wire form and checked once; after that no method
// can meet a malformed tiling. Positions are logical (0..n-1, the order of the array's device
// list). Only even tilings are supported, as in JAX: a dimension that its tiles do not divide is
// INVALID_ARGUMENT.
#ifndef GANGWAY_XLA_SHARDING_H_
#define GANGWAY_XLA_SHARDING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {

// Where a shard lies in the global array, per dimension, in elements.
struct ShardExtent {
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
  bool operator==(const ShardExtent&) const = default;
};

class Sharding {
 public:
  enum class Kind {
    kReplicated,  // every position holds the whole array
    kMaximal,     // one position holds it; what the others hold has its shape, and no meaning
    kTiled,       // tile_counts() tiles; positions may share a tile (copies, or addends of it)
    kManual,      // every position holds an array of the given shape; XLA knows no global array
    kUnreduced,  // every position holds an addend of the given shape; the global array is their sum
  };

  // Accepts replicated, maximal, manual, unreduced, and tiled in both the listed and the iota (V2) form, with
  // replicated, manual or unreduced trailing dimensions. INVALID_ARGUMENT: a tuple, a malformed assignment, an
  // assignment of other than `position_count` positions, or a maximal one that does not name one of them.
  // UNIMPLEMENTED: other kinds.
  static absl::StatusOr<Sharding> FromProto(const OpShardingProto& proto, int64_t position_count);
  static Sharding Replicated(int64_t position_count);

  Kind kind() const { return kind_; }
  int64_t position_count() const { return position_count_; }
  // Whether every position holds the whole array.
  bool fully_replicated() const;
  // Tiles per dimension; empty unless kTiled.
  const std::vector<int64_t>& tile_counts() const { return tile_counts_; }

  absl::StatusOr<std::vector<int64_t>> ShardShape(std::span<const int64_t> global_shape) const;
  absl::StatusOr<std::vector<int64_t>> GlobalShape(std::span<const int64_t> shard_shape) const;
  // OUT_OF_RANGE if `position` is not one of position_count().
  absl::StatusOr<ShardExtent> Extent(int64_t position, std::span<const int64_t> global_shape) const;

 private:
  Sharding(Kind kind, int64_t position_count) : kind_(kind), position_count_(position_count) {}
  static absl::StatusOr<Sharding> Maximal(const OpShardingProto& proto, int64_t position_count);
  static absl::StatusOr<Sharding> Tiled(const OpShardingProto& proto, int64_t position_count);

  Kind kind_;
  int64_t position_count_;
  std::vector<int64_t> tile_counts_;
  bool copies_differ_ = false;             // positions that share a tile hold different bytes
  std::vector<int32_t> tile_of_position_;  // row-major index into tile_counts_, per position
};

// The positions in the row-major order of the tile assignment, both forms. INVALID_ARGUMENT unless
// it names each of 0..n-1 exactly once.
absl::StatusOr<std::vector<int32_t>> TileAssignment(const OpShardingProto& proto);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_SHARDING_H_
