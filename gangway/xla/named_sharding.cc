// Implementation of named_sharding.h.
#include "gangway/xla/named_sharding.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/sharding.h"

namespace gangway::xla {
namespace {

constexpr int64_t kPositionsMax = int64_t{1} << 20;
constexpr size_t kPartsMax = 64;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed sharding: ", why));
}

// A piece of a mesh axis that shardings do not cut further.
struct Part {
  int64_t axis = 0;
  int64_t before = 1;  // the product of the sizes of the axis' parts before it
  int64_t size = 1;
  int64_t stride = 1;  // in the mesh
  bool is_used = false;
};

class Mesh {
 public:
  // Cut so that each of `refs` is some of its parts.
  static absl::StatusOr<Mesh> Cut(const MeshProto& proto,
                                  const std::vector<const AxisRefProto*>& refs) {
    std::vector<std::vector<int64_t>> cuts(proto.axes_size());
    for (int axis = 0; axis < proto.axes_size(); ++axis) cuts[axis] = {1, proto.axes(axis).size()};
    for (const AxisRefProto* ref : refs) {
      const int64_t axis = ref->mesh_axis_index();
      if (axis < 0 || axis >= proto.axes_size())
        return Malformed(absl::StrCat("it is along axis ", axis, " of ", proto.axes_size()));
      if (!ref->has_sub_axis_info()) continue;
      const int64_t before = ref->sub_axis_info().pre_size(), size = ref->sub_axis_info().size();
      if (before < 1 || size < 1 || before > kPositionsMax || size > kPositionsMax)
        return Malformed("a part of an axis has no size");
      cuts[axis].push_back(before);
      cuts[axis].push_back(before * size);
    }
    Mesh mesh;
    int64_t stride = 1;
    for (int axis = proto.axes_size() - 1; axis >= 0; --axis) {  // the last part has stride 1
      std::vector<int64_t>& at = cuts[axis];
      std::sort(at.begin(), at.end());
      at.erase(std::unique(at.begin(), at.end()), at.end());
      if (at.back() != proto.axes(axis).size()) return Malformed("a part reaches beyond its axis");
      for (size_t i = at.size() - 1; i > 0; --i) {
        if (at[i] % at[i - 1] != 0) return Malformed("the parts of an axis do not divide it");
        const int64_t size = at[i] / at[i - 1];
        mesh.parts_.push_back({.axis = axis, .before = at[i - 1], .size = size, .stride = stride});
        stride *= size;
      }
    }
    if (mesh.parts_.size() > kPartsMax) return Malformed("its mesh has too many axes");
    std::reverse(mesh.parts_.begin(), mesh.parts_.end());
    return mesh;
  }

  // The parts of `refs`, major to minor; they are used then. INVALID_ARGUMENT: one is used already.
  template <typename Refs>
  absl::StatusOr<std::vector<Part>> Take(const Refs& refs) {
    std::vector<Part> taken;
    for (const AxisRefProto& ref : refs) {
      const int64_t from = ref.has_sub_axis_info() ? ref.sub_axis_info().pre_size() : 1;
      for (Part& part : parts_) {
        if (part.axis != ref.mesh_axis_index() || part.before < from ||
            (ref.has_sub_axis_info() && part.before >= from * ref.sub_axis_info().size()))
          continue;
        if (std::exchange(part.is_used, true)) return Malformed("it uses an axis twice");
        taken.push_back(part);
      }
    }
    return taken;
  }
  std::vector<Part> TakeRest() {
    std::vector<Part> rest;
    for (Part& part : parts_)
      if (!std::exchange(part.is_used, true)) rest.push_back(part);
    return rest;
  }

 private:
  std::vector<Part> parts_;  // in the order of the axes
};

int64_t SizeOf(const std::vector<Part>& parts) {
  int64_t size = 1;
  for (const Part& part : parts) size *= part.size;
  return size;
}

// The places in the mesh of all positions, where the last part varies fastest.
std::vector<int64_t> Places(const std::vector<Part>& parts, int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(count), 0);
  int64_t repeats = count;
  for (const Part& part : parts) {
    repeats /= part.size;
    for (int64_t i = 0; i < count; ++i)
      places[static_cast<size_t>(i)] += (i / repeats) % part.size * part.stride;
  }
  return places;
}

std::vector<const AxisRefProto*> RefsOf(const NamedShardingProto& named) {
  std::vector<const AxisRefProto*> refs;
  for (const auto& dimension : named.dim_shardings())
    for (const AxisRefProto& each : dimension.axes()) refs.push_back(&each);
  for (const AxisRefProto& each : named.manual_axes()) refs.push_back(&each);
  for (const AxisRefProto& each : named.unreduced_axes()) refs.push_back(&each);
  return refs;
}

OpShardingProto Of(OpShardingProto::Type type) {
  OpShardingProto proto;
  proto.set_type(type);
  return proto;
}

absl::StatusOr<OpShardingProto> Tiles(const NamedShardingProto& named) {
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, MeshIds(named.mesh(), kPositionsMax));
  const auto count = static_cast<int64_t>(ids.size());
  if (named.mesh().axes().empty()) {  // a mesh of one device: the array is there alone
    OpShardingProto proto = Of(named.mesh().device_ids().empty() ? OpShardingProto::TYPE_REPLICATED
                                                                 : OpShardingProto::TYPE_MAXIMAL);
    *proto.mutable_tile_assignment_devices() = named.mesh().device_ids();
    return proto;
  }
  GANGWAY_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Cut(named.mesh(), RefsOf(named)));
  OpShardingProto proto = Of(OpShardingProto::TYPE_OTHER);
  std::vector<Part> order;
  const auto append = [&proto, &order](const std::vector<Part>& parts) {
    proto.add_tile_assignment_dimensions(SizeOf(parts));
    order.insert(order.end(), parts.begin(), parts.end());
  };
  for (const auto& dimension : named.dim_shardings()) {
    GANGWAY_ASSIGN_OR_RETURN(const std::vector<Part> parts, mesh.Take(dimension.axes()));
    append(parts);
  }
  const int64_t tiles = SizeOf(order);
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<Part> manual, mesh.Take(named.manual_axes()));
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<Part> unreduced, mesh.Take(named.unreduced_axes()));
  const std::vector<Part> rest = mesh.TakeRest();
  if (count > 1 && SizeOf(manual) == count) return Of(OpShardingProto::TYPE_MANUAL);
  if (count > 1 && SizeOf(unreduced) == count) return Of(OpShardingProto::TYPE_UNREDUCED);
  if (tiles * SizeOf(manual) * SizeOf(unreduced) == 1) return Of(OpShardingProto::TYPE_REPLICATED);
  const std::pair<OpShardingProto::Type, const std::vector<Part>&> groups[] = {
      {OpShardingProto::TYPE_REPLICATED, rest},
      {OpShardingProto::TYPE_MANUAL, manual},
      {OpShardingProto::TYPE_UNREDUCED, unreduced}};
  for (const auto& [type, parts] : groups) {
    if (SizeOf(parts) == 1) continue;
    append(parts);
    proto.add_last_tile_dims(type);
  }
  for (int64_t place : Places(order, count))
    proto.add_tile_assignment_devices(ids[static_cast<size_t>(place)]);
  return proto;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> MeshIds(const MeshProto& mesh, int64_t ids_max) {
  int64_t count = 1;
  for (const auto& axis : mesh.axes()) {
    if (axis.size() <= 0 || axis.size() > ids_max / count)
      return Malformed("the axes of its mesh do not fit its ids");
    count *= axis.size();
  }
  if (!mesh.device_ids().empty()) {
    if (mesh.device_ids_size() != count)
      return Malformed("the ids of its mesh do not fit its axes");
    return std::vector<int64_t>(mesh.device_ids().begin(), mesh.device_ids().end());
  }
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  if (!mesh.has_iota_transform()) return ids;
  // The same as an iota of tiles.
  OpShardingProto tiles;
  tiles.add_tile_assignment_dimensions(count);
  *tiles.mutable_iota_reshape_dims() = mesh.iota_transform().reshape_dims();
  for (int64_t axis : mesh.iota_transform().transpose_perm()) {
    if (axis < 0 || axis > static_cast<int64_t>(kPartsMax))
      return Malformed("the transpose of its mesh is none");
    tiles.add_iota_transpose_perm(static_cast<int32_t>(axis));
  }
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int32_t> order, TileAssignment(tiles));
  return std::vector<int64_t>(order.begin(), order.end());
}

absl::StatusOr<OpShardingProto> AsTiles(const OpShardingProto& proto) {
  return proto.has_named_sharding() ? Tiles(proto.named_sharding()) : proto;
}

}  // namespace gangway::xla
