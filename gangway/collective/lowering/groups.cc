// Implementation of groups.h.
#include "gangway/collective/lowering/groups.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/named_sharding.h"

namespace gangway::collective {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

// What the ids in a group count.
enum class Mode { kReplicas, kPartitions, kReplicasOfAllPartitions, kPositions };

absl::StatusOr<Mode> ModeOf(const xla::HloInstructionEditProto& instruction) {
  const bool has_channel = instruction.channel_id() > 0;
  const bool reduces_or_gathers = instruction.opcode() == "all-reduce" ||
                                  instruction.opcode() == "all-gather" ||
                                  instruction.opcode() == "reduce-scatter";
  if (!reduces_or_gathers) {
    if (instruction.use_global_device_ids())
      return absl::UnimplementedError(
          "it uses global device ids, which only reductions and gathers are known to do");
    return has_channel ? Mode::kPartitions : Mode::kReplicas;
  }
  if (instruction.use_global_device_ids()) {
    if (!has_channel) return Wrong("it uses global device ids without a channel");
    return Mode::kPositions;
  }
  return has_channel ? Mode::kReplicasOfAllPartitions : Mode::kReplicas;
}

int64_t IdsOf(Mode mode, const Positions& positions) {
  switch (mode) {
    case Mode::kReplicas:
    case Mode::kReplicasOfAllPartitions:
      return positions.replicas;
    case Mode::kPartitions:
      return positions.partitions;
    case Mode::kPositions:
      return positions.count();
  }
  return 0;
}

absl::StatusOr<Groups> FromIota(const xla::IotaReplicaGroupListProto& list, int64_t ids) {
  const int64_t rows = list.num_replica_groups(), columns = list.num_devices_per_group();
  if (rows <= 0 || columns <= 0 || rows > ids || columns > ids || rows * columns > ids)
    return Wrong(absl::StrCat("its groups are ", rows, " x ", columns, " of ", ids, " ids"));
  std::vector<int64_t> dims(list.iota_reshape_dims().begin(), list.iota_reshape_dims().end());
  std::vector<int64_t> order(list.iota_transpose_perm().begin(), list.iota_transpose_perm().end());
  if (dims.empty()) dims = {rows * columns};
  if (order.empty()) {
    order.resize(dims.size());
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<int64_t> strides(dims.size());
  std::vector<bool> seen(dims.size());
  int64_t product = 1;
  for (size_t i = dims.size(); i-- > 0; product *= dims[i]) {
    strides[i] = product;
    if (dims[i] <= 0 || dims[i] > ids || product > ids / dims[i])
      return Wrong("the dimensions of its groups do not fit its ids");
  }
  if (product != rows * columns || order.size() != dims.size())
    return Wrong("the dimensions of its groups do not fit their number");
  for (int64_t axis : order) {
    if (axis < 0 || axis >= static_cast<int64_t>(dims.size()) || seen[axis])
      return Wrong("the order of its groups' dimensions is not a permutation");
    seen[axis] = true;
  }
  Groups groups(rows, std::vector<int64_t>(columns));
  std::vector<int64_t> index(dims.size());  // in the transposed order
  for (int64_t i = 0; i < product; ++i) {
    int64_t id = 0;
    for (size_t axis = 0; axis < order.size(); ++axis) id += index[axis] * strides[order[axis]];
    groups[i / columns][i % columns] = id;
    for (size_t axis = order.size(); axis-- > 0;) {
      if (++index[axis] < dims[order[axis]]) break;
      index[axis] = 0;
    }
  }
  return groups;
}

// How one axis of a mesh is cut: the sizes of its parts, and which of them the ids of a group differ along.
struct CutAxis {
  std::vector<int64_t> sizes;
  std::vector<bool> is_grouped;
};

// `refs`: those of this axis. They must be in the order of the parts: versions of XLA disagree on how another order
// arranges a group's ids.
absl::StatusOr<CutAxis> Cut(int64_t size, const std::vector<const xla::AxisRefProto*>& refs) {
  CutAxis cut;
  int64_t before = 1;  // the product of the parts so far
  const auto add = [&](int64_t part, bool is_grouped) {
    if (part > 1 || is_grouped) {
      cut.sizes.push_back(part);
      cut.is_grouped.push_back(is_grouped);
    }
    before *= part;
  };
  for (const xla::AxisRefProto* ref : refs) {
    const int64_t from = ref->has_sub_axis_info() ? ref->sub_axis_info().pre_size() : 1;
    const int64_t part = ref->has_sub_axis_info() ? ref->sub_axis_info().size() : size;
    if (from < before && from > 0)
      return absl::UnimplementedError("the parts of a mesh axis overlap, or are not in order");
    if (from <= 0 || part <= 0 || from > size || part > size || from % before != 0 ||
        size % from != 0 || (size / from) % part != 0)
      return Wrong("the parts of a mesh axis do not divide it");
    add(from / before, false);
    add(part, true);
  }
  add(size / before, false);
  return cut;
}

absl::StatusOr<Groups> FromMeshAxes(const xla::MeshAxesReplicaGroupListProto& list, int64_t ids) {
  const auto& axes = list.mesh().axes();
  std::vector<std::vector<const xla::AxisRefProto*>> refs(axes.size());
  int64_t last = 0;
  for (const xla::AxisRefProto& ref : list.axes()) {
    const int64_t axis = ref.mesh_axis_index();
    if (axis < 0 || axis >= axes.size())
      return Wrong(absl::StrCat("its groups are along axis ", axis, " of ", axes.size()));
    if (axis < last)
      return absl::UnimplementedError("the mesh axes of its groups are not in order");
    refs[axis].push_back(&ref);
    last = axis;
  }
  // As an iota: the parts of all axes, and those of the groups last.
  xla::IotaReplicaGroupListProto iota;
  std::vector<int32_t> grouped;
  int64_t count = 1, group_size = 1;
  for (int i = 0; i < axes.size(); ++i) {
    const int64_t size = axes[i].size();
    if (size <= 0 || size > ids / count) return Wrong("the axes of its mesh do not fit its ids");
    count *= size;
    GANGWAY_ASSIGN_OR_RETURN(const CutAxis cut, Cut(size, refs[i]));
    for (size_t part = 0; part < cut.sizes.size(); ++part) {
      const int32_t dimension = iota.iota_reshape_dims_size();
      iota.add_iota_reshape_dims(cut.sizes[part]);
      if (cut.is_grouped[part]) {
        group_size *= cut.sizes[part];
        grouped.push_back(dimension);
      } else {
        iota.add_iota_transpose_perm(dimension);
      }
    }
  }
  for (int32_t dimension : grouped) iota.add_iota_transpose_perm(dimension);
  iota.set_num_replica_groups(count / group_size);
  iota.set_num_devices_per_group(group_size);
  GANGWAY_ASSIGN_OR_RETURN(Groups groups, FromIota(iota, ids));
  auto named = xla::MeshIds(list.mesh(), ids);
  if (!named.ok()) return Wrong(std::string(named.status().message()));
  for (std::vector<int64_t>& group : groups)
    for (int64_t& id : group) id = (*named)[static_cast<size_t>(id)];
  return groups;
}

Groups FromExplicit(
    const google::protobuf::RepeatedPtrField<xla::ReplicaGroupProto>& replica_groups) {
  Groups groups;
  for (const xla::ReplicaGroupProto& group : replica_groups)
    groups.emplace_back(group.replica_ids().begin(), group.replica_ids().end());
  return groups;
}

// Empty: one group of all ids.
absl::StatusOr<Groups> ReadGroups(const xla::HloInstructionEditProto& instruction, int64_t ids) {
  std::vector<Groups> said;
  if (instruction.has_mesh_axes_replica_group_list()) {
    GANGWAY_ASSIGN_OR_RETURN(Groups groups,
                             FromMeshAxes(instruction.mesh_axes_replica_group_list(), ids));
    said.push_back(std::move(groups));
  }
  if (!instruction.replica_groups().empty())
    said.push_back(FromExplicit(instruction.replica_groups()));
  const xla::CollectiveDeviceListProto& list = instruction.collective_device_list();
  if (!list.replica_groups().empty()) said.push_back(FromExplicit(list.replica_groups()));
  for (const auto* iota :
       {list.has_iota_replica_group_list() ? &list.iota_replica_group_list() : nullptr,
        instruction.has_iota_collective_device_list() ? &instruction.iota_collective_device_list()
                                                      : nullptr}) {
    if (iota == nullptr) continue;
    GANGWAY_ASSIGN_OR_RETURN(Groups groups, FromIota(*iota, ids));
    said.push_back(std::move(groups));
  }
  for (size_t i = 1; i < said.size(); ++i)
    if (said[i] != said[0]) return Wrong("it names its groups twice, differently");
  if (!said.empty()) return said[0];
  std::vector<int64_t> all(ids);
  std::iota(all.begin(), all.end(), 0);
  return Groups{std::move(all)};
}

absl::Status CheckDisjoint(const Groups& groups, int64_t ids) {
  std::vector<bool> seen(ids);
  for (const std::vector<int64_t>& group : groups) {
    if (group.empty()) return Wrong("one of its groups is empty");
    for (int64_t id : group) {
      if (id < 0 || id >= ids)
        return Wrong(absl::StrCat("a group names ", id, ", and there are ", ids, " ids"));
      if (seen[id]) return Wrong(absl::StrCat("its groups name ", id, " twice"));
      seen[id] = true;
    }
  }
  return absl::OkStatus();
}

void AddGroup(const std::vector<int64_t>& ids, int64_t scale, int64_t offset,
              xla::CollectiveGroups& groups) {
  auto* group = groups.add_groups();
  for (int64_t id : ids) group->add_positions(static_cast<uint32_t>(id * scale + offset));
}

}  // namespace

absl::StatusOr<xla::CollectiveGroups> GroupsOf(const xla::HloInstructionEditProto& instruction,
                                               const Positions& positions) {
  GANGWAY_ASSIGN_OR_RETURN(const Mode mode, ModeOf(instruction));
  const int64_t ids = IdsOf(mode, positions);
  GANGWAY_ASSIGN_OR_RETURN(const Groups groups, ReadGroups(instruction, ids));
  GANGWAY_RETURN_IF_ERROR(CheckDisjoint(groups, ids));
  xla::CollectiveGroups meeting;
  for (const std::vector<int64_t>& group : groups) {
    switch (mode) {
      case Mode::kPositions:
        AddGroup(group, 1, 0, meeting);
        break;
      case Mode::kReplicas:
        for (int64_t partition = 0; partition < positions.partitions; ++partition)
          AddGroup(group, positions.partitions, partition, meeting);
        break;
      case Mode::kPartitions:
        for (int64_t replica = 0; replica < positions.replicas; ++replica)
          AddGroup(group, 1, replica * positions.partitions, meeting);
        break;
      case Mode::kReplicasOfAllPartitions: {
        std::vector<int64_t> members;
        for (int64_t replica : group) {
          for (int64_t partition = 0; partition < positions.partitions; ++partition)
            members.push_back(replica * positions.partitions + partition);
        }
        AddGroup(members, 1, 0, meeting);
        break;
      }
    }
  }
  return meeting;
}

absl::Status CheckComplete(const xla::CollectiveGroups& groups, const Positions& positions) {
  int64_t members = 0;
  for (const auto& group : groups.groups()) members += group.positions_size();
  if (members == positions.count()) return absl::OkStatus();
  return Wrong(
      absl::StrCat("its groups have ", members, " of the ", positions.count(), " positions"));
}

absl::StatusOr<int64_t> GroupSize(const xla::CollectiveGroups& groups) {
  const int64_t size = groups.groups(0).positions_size();
  for (const auto& group : groups.groups())
    if (group.positions_size() != size) return Wrong("its groups differ in size");
  return size;
}

absl::Status AddPairs(const xla::HloInstructionEditProto& instruction, const Positions& positions,
                      xla::Collective& permute) {
  GANGWAY_ASSIGN_OR_RETURN(const Mode mode, ModeOf(instruction));
  const int64_t ids = IdsOf(mode, positions);
  std::vector<bool> sends(ids), receives(ids);
  auto add = [&](int64_t source, int64_t target) {
    permute.add_sources(static_cast<uint32_t>(source));
    permute.add_targets(static_cast<uint32_t>(target));
  };
  for (const xla::SourceTargetProto& pair : instruction.source_target_pairs()) {
    const int64_t source = pair.source(), target = pair.target();
    if (source < 0 || target < 0 || source >= ids || target >= ids)
      return Wrong(absl::StrCat("it sends from ", source, " to ", target, " of ", ids, " ids"));
    if (sends[source]) return Wrong(absl::StrCat("it sends from ", source, " twice"));
    if (receives[target]) return Wrong(absl::StrCat("it sends to ", target, " twice"));
    sends[source] = receives[target] = true;
    if (mode == Mode::kReplicas) {
      for (int64_t partition = 0; partition < positions.partitions; ++partition)
        add(source * positions.partitions + partition, target * positions.partitions + partition);
    } else {
      for (int64_t replica = 0; replica < positions.replicas; ++replica)
        add(replica * positions.partitions + source, replica * positions.partitions + target);
    }
  }
  return absl::OkStatus();
}

}  // namespace gangway::collective
