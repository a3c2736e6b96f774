// Implementation of attributes.h.
#include "gangway/compiler/check/attributes.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

#include "gangway/base/status.h"

namespace gangway::compiler {
namespace {

using xla::hlo::AxisRef;
using xla::hlo::Mesh;
using xla::hlo::NamedSharding;
using xla::hlo::Sharding;

// The product of positive sizes, up to kPositionsMax.
absl::StatusOr<int64_t> Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 1 || size > kPositionsMax || product * size > kPositionsMax)
      return Bad("a mesh, tiling or group list has more than ", kPositionsMax,
                 " positions, or an axis of none");
    product *= size;
  }
  return product;
}

absl::StatusOr<int64_t> AxisSize(const Mesh& mesh, const AxisRef& axis) {
  if (axis.mesh_axis_index() < 0 || axis.mesh_axis_index() >= mesh.axes_size())
    return Bad("it names axis ", axis.mesh_axis_index(), " of a mesh of ", mesh.axes_size());
  const int64_t whole = mesh.axes(static_cast<int>(axis.mesh_axis_index())).size();
  if (!axis.has_sub_axis_info()) return whole;
  const auto& part = axis.sub_axis_info();
  const std::array<int64_t, 2> sizes = {part.pre_size(), part.size()};
  GANGWAY_ASSIGN_OR_RETURN(const int64_t product, Product(sizes));
  if (whole % product != 0)
    return Bad("it takes ", part.size(), " of an axis of ", whole, " after ", part.pre_size());
  return part.size();
}

}  // namespace

absl::StatusOr<int64_t> CheckMesh(const Mesh& mesh) {
  std::vector<int64_t> sizes;
  for (const auto& axis : mesh.axes()) {
    GANGWAY_RETURN_IF_ERROR(axis.name().empty() ? absl::OkStatus() : CheckName(axis.name()));
    sizes.push_back(axis.size());
  }
  if (sizes.size() > kRankMax) return Bad("a mesh has ", sizes.size(), " axes");
  // A mesh without axes is of one device, which its list names.
  if (sizes.empty() && mesh.device_ids_size() == 1) {
    if (mesh.device_ids(0) < 0 || mesh.device_ids(0) >= kPositionsMax)
      return Bad("a mesh holds position ", mesh.device_ids(0));
    return 1;
  }
  GANGWAY_ASSIGN_OR_RETURN(const int64_t total, Product(sizes));
  if (mesh.device_ids_size() > 0 && !IsPermutation(SpanOf(mesh.device_ids()), total))
    return Bad("a mesh of ", total, " does not hold each position once");
  if (mesh.has_iota_transform()) {
    const auto& iota = mesh.iota_transform();
    GANGWAY_ASSIGN_OR_RETURN(const int64_t product, Product(SpanOf(iota.reshape_dims())));
    if (product != total || !IsPermutation(SpanOf(iota.transpose_perm()), iota.reshape_dims_size()))
      return Bad("the order of a mesh's positions does not fit its size of ", total);
  }
  return total;
}

absl::StatusOr<int64_t> CheckAxes(const Mesh& mesh,
                                  const google::protobuf::RepeatedPtrField<AxisRef>& axes) {
  if (axes.size() > kRankMax) return Bad("it names ", axes.size(), " axes");
  std::vector<int64_t> sizes;
  for (int i = 0; i < axes.size(); ++i) {
    GANGWAY_ASSIGN_OR_RETURN(sizes.emplace_back(), AxisSize(mesh, axes[i]));
    for (int j = 0; j < i; ++j)
      if (axes[j].mesh_axis_index() == axes[i].mesh_axis_index() &&
          (!axes[j].has_sub_axis_info() || !axes[i].has_sub_axis_info() ||
           axes[j].sub_axis_info().pre_size() == axes[i].sub_axis_info().pre_size()))
        return Bad("it names axis ", axes[i].mesh_axis_index(), " twice");
  }
  return Product(sizes);
}

absl::Status CheckIotaForm(std::span<const int64_t> dims,
                           const google::protobuf::RepeatedField<int32_t>& order, int64_t total) {
  GANGWAY_ASSIGN_OR_RETURN(const int64_t product, Product(dims));
  const std::vector<int64_t> wide(order.begin(), order.end());
  if (product != total || dims.size() > kRankMax ||
      !IsPermutation(wide, static_cast<int64_t>(dims.size())))
    return Bad("an order of ", total, " positions is not a transposition of as many");
  return absl::OkStatus();
}

namespace {

absl::Status CheckPositions(int64_t total, const Positions& positions) {
  if (positions.replicas == 0 || total == positions.partitions) return absl::OkStatus();
  return Bad("a sharding is over ", total, " positions, and the program has ",
             positions.partitions);
}

absl::Status CheckNamed(const NamedSharding& named, const Shape& shape,
                        const Positions& positions) {
  GANGWAY_ASSIGN_OR_RETURN(const int64_t total, CheckMesh(named.mesh()));
  if (named.mesh().axes_size() > 0) GANGWAY_RETURN_IF_ERROR(CheckPositions(total, positions));
  if (named.dim_shardings_size() > kRankMax || (IsArray(shape) && named.dim_shardings_size() != 0 &&
                                                named.dim_shardings_size() != Rank(shape)))
    return Bad("a sharding of ", named.dim_shardings_size(), " dimensions is for ", Text(shape));
  if (named.reduction_op() < 0 || named.reduction_op() > 2)
    return Bad("a sharding has reduction ", named.reduction_op());
  google::protobuf::RepeatedPtrField<AxisRef> all;
  for (const auto& dim : named.dim_shardings()) all.MergeFrom(dim.axes());
  all.MergeFrom(named.replicated_axes());
  all.MergeFrom(named.unreduced_axes());
  all.MergeFrom(named.manual_axes());
  return CheckAxes(named.mesh(), all).status();
}

// Tiles by dimension; behind them, dimensions over which the value is repeated, or means something else.
absl::Status CheckTiles(const Sharding& sharding, const Shape& shape, const Positions& positions) {
  const auto tiles = SpanOf(sharding.tile_assignment_dimensions());
  GANGWAY_ASSIGN_OR_RETURN(const int64_t total, Product(tiles));
  const int64_t behind =
      sharding.last_tile_dims_size() + (sharding.replicate_on_last_tile_dim() ? 1 : 0);
  if (tiles.empty() ||
      (sharding.replicate_on_last_tile_dim() && sharding.last_tile_dims_size() > 0) ||
      (IsArray(shape) && static_cast<int64_t>(tiles.size()) != Rank(shape) + behind))
    return Bad("a sharding of ", tiles.size(), " dimensions is for ", Text(shape));
  for (const int32_t kind : sharding.last_tile_dims())
    if (kind < 0 || kind > 6) return Bad("a sharding has a last dimension of kind ", kind);
  GANGWAY_RETURN_IF_ERROR(CheckPositions(total, positions));
  if (sharding.iota_reshape_dims_size() > 0) {
    if (sharding.tile_assignment_devices_size() > 0)
      return Bad("a sharding gives its positions twice");
    return CheckIotaForm(SpanOf(sharding.iota_reshape_dims()), sharding.iota_transpose_perm(),
                         total);
  }
  if (!IsPermutation(SpanOf(sharding.tile_assignment_devices()), total))
    return Bad("a sharding does not hold each of its ", total, " positions once");
  return absl::OkStatus();
}

absl::Status CheckParts(const Sharding& sharding, const Shape& shape, const Positions& positions,
                        int depth) {
  if (depth >= kTupleDepthMax) return Bad("shardings are nested too deep");
  std::vector<const Shape*> leaves;
  const auto collect = [&](const auto& self, const Shape& part) -> void {
    if (!IsTuple(part)) leaves.push_back(&part);
    for (const Shape& each : part.tuple_shapes()) self(self, each);
  };
  collect(collect, shape);
  // An empty tuple still has one sharding.
  const auto given = static_cast<size_t>(sharding.tuple_shardings_size());
  if (!IsTuple(shape) || given != std::max<size_t>(leaves.size(), 1))
    return Bad("a sharding of ", given, " parts is for ", Text(shape));
  for (size_t i = 0; i < given; ++i) {
    const Shape& part = i < leaves.size() ? *leaves[i] : shape;
    GANGWAY_RETURN_IF_ERROR(
        CheckSharding(sharding.tuple_shardings(static_cast<int>(i)), part, positions, depth + 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSharding(const Sharding& sharding, const Shape& shape, const Positions& positions,
                           int depth) {
  enum : int { kReplicated, kMaximal, kTuple, kOther, kManual, kUnknown, kUnreduced };
  for (const auto& note : sharding.metadata()) GANGWAY_RETURN_IF_ERROR(CheckMetadata(note, 0));
  if (sharding.shard_group_type() < 0 || sharding.shard_group_type() > 1)
    return Bad("a sharding is in a group of kind ", sharding.shard_group_type());
  if (sharding.type() != kTuple && sharding.tuple_shardings_size() > 0)
    return Bad("a sharding that is none of a tuple has parts");
  if (sharding.has_named_sharding()) return CheckNamed(sharding.named_sharding(), shape, positions);
  switch (sharding.type()) {
    case kTuple:
      return CheckParts(sharding, shape, positions, depth);
    case kOther:
      return CheckTiles(sharding, shape, positions);
    case kReplicated:
    case kManual:
    case kUnknown:
    case kUnreduced:
      return absl::OkStatus();
    case kMaximal:
      break;
    default:
      return Bad("a sharding is of kind ", sharding.type());
  }
  const int64_t limit = positions.replicas == 0 ? kPositionsMax : positions.partitions;
  if (sharding.tile_assignment_devices_size() != 1 || sharding.tile_assignment_devices(0) < 0 ||
      sharding.tile_assignment_devices(0) >= limit)
    return Bad("a sharding puts a value on a position that the program does not have");
  return absl::OkStatus();
}

namespace {

// Prefixes of keys that XLA or Shardy may give a meaning, and the keys of them that are harmless.
constexpr std::array<std::string_view, 6> kReserved = {"xla",  "_xla",        "sdy",
                                                       "mhlo", "_scheduling", "inline"};
constexpr std::array<std::string_view, 18> kAllowed = {"xla.sdy.sharding",
                                                       "xla.sdy.sharding_rule",
                                                       "xla.sdy.meshes",
                                                       "xla.sdy.manual_axes",
                                                       "xla.sdy.in_shardings",
                                                       "xla.sdy.out_shardings",
                                                       "xla.sdy.tuple_results_shardings",
                                                       "xla.sdy.tuple_args_shardings",
                                                       "xla.sdy.use_tuple_args",
                                                       "xla.sdy.propagation_barrier",
                                                       "xla.sdy.allowed_direction",
                                                       "xla.sdy.sharding_group_id",
                                                       "xla.sdy.has_unreduced_axes",
                                                       "xla.sdy.import_mhlo_shardings",
                                                       "inlineable",
                                                       "_xla_buffer_placement",
                                                       "_xla_compute_type",
                                                       "_scheduling_group_id"};

}  // namespace

absl::Status CheckFrontendAttributes(const xla::hlo::FrontendAttributes& attributes) {
  if (attributes.map_size() > kAttributesMax)
    return Bad("it has ", attributes.map_size(), " frontend attributes; at most ", kAttributesMax,
               " are taken");
  for (const auto& [key, value] : attributes.map()) {
    if (key.size() > kNameBytesMax || value.size() > kAttributeBytesMax)
      return Bad("its frontend attribute \"", Shown(key), "\" is too long");
    const bool is_reserved = std::ranges::any_of(kReserved, [&](std::string_view prefix) {
      return absl::StartsWithIgnoreCase({key.data(), key.size()}, {prefix.data(), prefix.size()});
    });
    if (is_reserved && std::ranges::find(kAllowed, key) == kAllowed.end())
      return NotTaken("its frontend attribute \"", Shown(key), "\" is not known: leave it out");
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const xla::hlo::Metadata& metadata, int frames) {
  if (metadata.stack_frame_id() < 0 || metadata.stack_frame_id() > frames)
    return Bad("it names stack frame ", metadata.stack_frame_id(), " of ", frames);
  const size_t bytes = metadata.op_type().size() + metadata.op_name().size() +
                       metadata.source_file().size() + metadata.deduplicated_name().size() +
                       metadata.scheduling_name().size();
  if (bytes > kAttributeBytesMax) return Bad("its metadata have ", bytes, " bytes");
  return absl::OkStatus();
}

absl::Status CheckName(std::string_view name) {
  const bool is_clean = std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (name.empty() || name.size() > kNameBytesMax || !is_clean)
    return Bad("the name \"", Shown(name), "\" is empty, too long or has control characters");
  return absl::OkStatus();
}

std::string Shown(std::string_view name) {
  constexpr size_t kShownMax = 80;
  const std::string_view part = name.substr(0, kShownMax);
  return absl::StrCat(absl::CHexEscape(absl::string_view(part.data(), part.size())),
                      name.size() > kShownMax ? "..." : "");
}

}  // namespace gangway::compiler
