// Implementation of sharding.h.
#include "gangway/xla/sharding.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/named_sharding.h"

namespace gangway::xla {
namespace {

// More than any cluster has; bounds the memory that a hostile assignment can claim.
constexpr int64_t kPositionsMax = int64_t{1} << 20;
constexpr int kTileRankMax = 64;

absl::Status Malformed(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed sharding: ", std::string(why)));
}

// Product of sizes that must all be positive; an error if it passes kPositionsMax.
template <typename Dims>
absl::StatusOr<int64_t> Product(const Dims& dims, std::string_view what) {
  if (dims.size() > kTileRankMax)
    return Malformed(absl::StrCat(std::string(what), " has too many dimensions"));
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim <= 0 || dim > kPositionsMax)
      return Malformed(absl::StrCat(std::string(what), " has a size of ", dim));
    product *= dim;
    if (product > kPositionsMax)
      return Malformed(absl::StrCat(std::string(what), " names over 2^20 positions"));
  }
  return product;
}

absl::StatusOr<std::vector<int32_t>> ListedAssignment(const OpShardingProto& proto, int64_t count) {
  if (proto.tile_assignment_devices_size() != count) {
    return Malformed(absl::StrCat(proto.tile_assignment_devices_size(), " positions listed for ",
                                  count, " tiles"));
  }
  std::vector<bool> seen(count);
  std::vector<int32_t> order;
  order.reserve(count);
  for (int64_t position : proto.tile_assignment_devices()) {
    if (position < 0 || position >= count || seen[position]) {
      return Malformed(
          absl::StrCat("position ", position, " of ", count, " is repeated or out of range"));
    }
    seen[position] = true;
    order.push_back(static_cast<int32_t>(position));
  }
  return order;
}

// iota(count) reshaped to iota_reshape_dims, transposed by iota_transpose_perm, read row-major.
absl::StatusOr<std::vector<int32_t>> IotaAssignment(const OpShardingProto& proto, int64_t count) {
  const auto& dims = proto.iota_reshape_dims();
  GANGWAY_ASSIGN_OR_RETURN(int64_t product, Product(dims, "the iota reshape"));
  if (product != count)
    return Malformed(absl::StrCat("an iota of ", product, " positions for ", count, " tiles"));
  const int rank = dims.size();
  std::vector<int> perm(proto.iota_transpose_perm().begin(), proto.iota_transpose_perm().end());
  if (static_cast<int>(perm.size()) != rank)
    return Malformed("the iota transpose and the reshape differ in rank");
  std::vector<bool> seen(rank);
  for (int axis : perm) {
    if (axis < 0 || axis >= rank || seen[axis])
      return Malformed("the iota transpose is not a permutation");
    seen[axis] = true;
  }
  std::vector<int64_t> stride(rank, 1);
  for (int i = rank - 2; i >= 0; --i) stride[i] = stride[i + 1] * dims[i + 1];
  std::vector<int32_t> order(count);
  std::vector<int64_t> index(rank, 0);  // in the transposed shape
  int64_t value = 0;
  for (int64_t i = 0; i < count; ++i) {
    order[i] = static_cast<int32_t>(value);
    for (int axis = rank - 1; axis >= 0; --axis) {
      value += stride[perm[axis]];
      if (++index[axis] < dims[perm[axis]]) break;
      value -= index[axis] * stride[perm[axis]];
      index[axis] = 0;
    }
  }
  return order;
}

std::string Dims(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) absl::StrAppend(&text, i ? "," : "", dims[i]);
  return text + "]";
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> TileAssignment(const OpShardingProto& proto) {
  GANGWAY_ASSIGN_OR_RETURN(int64_t count,
                           Product(proto.tile_assignment_dimensions(), "the tile assignment"));
  return proto.iota_reshape_dims().empty() ? ListedAssignment(proto, count)
                                           : IotaAssignment(proto, count);
}

Sharding Sharding::Replicated(int64_t position_count) {
  return Sharding(Kind::kReplicated, position_count);
}

absl::StatusOr<Sharding> Sharding::FromProto(const OpShardingProto& proto, int64_t position_count) {
  if (position_count < 1 || position_count > kPositionsMax) {
    return Malformed(absl::StrCat("an array on ", position_count, " devices"));
  }
  if (proto.has_named_sharding()) {
    GANGWAY_ASSIGN_OR_RETURN(const OpShardingProto tiles, AsTiles(proto));
    return FromProto(tiles, position_count);
  }
  switch (proto.type()) {
    case OpShardingProto::TYPE_REPLICATED:
      return Replicated(position_count);
    case OpShardingProto::TYPE_MAXIMAL:
      return Maximal(proto, position_count);
    case OpShardingProto::TYPE_MANUAL:
      return Sharding(Kind::kManual, position_count);
    case OpShardingProto::TYPE_UNREDUCED:
      return Sharding(Kind::kUnreduced, position_count);
    case OpShardingProto::TYPE_OTHER:
      return Tiled(proto, position_count);
    case OpShardingProto::TYPE_TUPLE:
      return Malformed("a tuple instead of one array's sharding");
    default:
      return absl::UnimplementedError(absl::StrCat(
          "a sharding of kind ", static_cast<int>(proto.type()), " is not supported by Gangway"));
  }
}

absl::StatusOr<Sharding> Sharding::Maximal(const OpShardingProto& proto, int64_t position_count) {
  const auto& holders = proto.tile_assignment_devices();
  const bool has_holder = holders.size() == 1 && holders[0] >= 0 && holders[0] < position_count;
  if (position_count != 1 && !has_holder) {
    return Malformed(absl::StrCat("a maximal sharding that names not one of the array's ",
                                  position_count, " devices"));
  }
  return Sharding(Kind::kMaximal, position_count);
}

absl::StatusOr<Sharding> Sharding::Tiled(const OpShardingProto& proto, int64_t position_count) {
  GANGWAY_ASSIGN_OR_RETURN(std::vector<int32_t> order, TileAssignment(proto));
  if (static_cast<int64_t>(order.size()) != position_count) {
    return Malformed(absl::StrCat("it spreads over ", order.size(),
                                  " positions, but the array is on ", position_count, " devices"));
  }
  const auto& dims = proto.tile_assignment_dimensions();
  int trailing =
      std::max<int>(proto.replicate_on_last_tile_dim() ? 1 : 0, proto.last_tile_dims_size());
  if (trailing > dims.size())
    return Malformed("more replicated dimensions than the tile assignment has");
  Sharding result(Kind::kTiled, position_count);
  for (int i = 0; i < proto.last_tile_dims_size(); ++i) {
    const int type = proto.last_tile_dims(i);
    const bool differ =
        type == OpShardingProto::TYPE_MANUAL || type == OpShardingProto::TYPE_UNREDUCED;
    if (type != OpShardingProto::TYPE_REPLICATED && !differ) {
      return absl::UnimplementedError(
          absl::StrCat("a sharding subgroup of kind ", type, " is not supported by Gangway"));
    }
    const int64_t size = dims[dims.size() - proto.last_tile_dims_size() + i];
    result.copies_differ_ = result.copies_differ_ || (differ && size > 1);
  }
  result.tile_counts_.assign(dims.begin(), dims.end() - trailing);
  int64_t copies = 1;
  for (int i = dims.size() - trailing; i < dims.size(); ++i) copies *= dims[i];
  result.tile_of_position_.resize(position_count);
  for (int64_t i = 0; i < position_count; ++i)
    result.tile_of_position_[order[i]] = static_cast<int32_t>(i / copies);
  return result;
}

bool Sharding::fully_replicated() const {
  switch (kind_) {
    case Kind::kReplicated:
      return true;
    case Kind::kMaximal:
    case Kind::kManual:
    case Kind::kUnreduced:
      return position_count_ == 1;
    case Kind::kTiled:
      return !copies_differ_ && std::all_of(tile_counts_.begin(), tile_counts_.end(),
                                            [](int64_t count) { return count == 1; });
  }
  return false;
}

absl::StatusOr<std::vector<int64_t>> Sharding::ShardShape(
    std::span<const int64_t> global_shape) const {
  std::vector<int64_t> shape(global_shape.begin(), global_shape.end());
  if (kind_ != Kind::kTiled) return shape;
  if (shape.size() != tile_counts_.size()) {
    return Malformed(
        absl::StrCat("tiles ", Dims(tile_counts_), " for an array of shape ", Dims(global_shape)));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || shape[i] % tile_counts_[i] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dimension ", i, " of shape ", Dims(global_shape), " cannot be split evenly in ",
          tile_counts_[i], "; uneven shards are not supported"));
    }
    shape[i] /= tile_counts_[i];
  }
  return shape;
}

absl::StatusOr<std::vector<int64_t>> Sharding::GlobalShape(
    std::span<const int64_t> shard_shape) const {
  std::vector<int64_t> shape(shard_shape.begin(), shard_shape.end());
  if (kind_ != Kind::kTiled) return shape;
  if (shape.size() != tile_counts_.size()) {
    return Malformed(
        absl::StrCat("tiles ", Dims(tile_counts_), " for a shard of shape ", Dims(shard_shape)));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(shape[i], tile_counts_[i], &shape[i])) {
      return Malformed(
          absl::StrCat("dimension ", i, " of shard shape ", Dims(shard_shape), " is out of range"));
    }
  }
  return shape;
}

absl::StatusOr<ShardExtent> Sharding::Extent(int64_t position,
                                             std::span<const int64_t> global_shape) const {
  if (position < 0 || position >= position_count_) {
    return absl::OutOfRangeError(
        absl::StrCat("shard ", position, " of an array on ", position_count_, " devices"));
  }
  GANGWAY_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ShardShape(global_shape));
  ShardExtent extent{std::vector<int64_t>(shape.size(), 0), std::move(shape)};
  if (kind_ != Kind::kTiled) return extent;
  int64_t tile = tile_of_position_[position];
  for (int i = static_cast<int>(tile_counts_.size()) - 1; i >= 0; --i) {
    extent.offset[i] = tile % tile_counts_[i] * extent.shape[i];
    tile /= tile_counts_[i];
  }
  return extent;
}

}  // namespace gangway::xla
