// Rules of collectives. A group that lacks a member, or has a foreign one, would wait for ever or meet others.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/attributes.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Instruction;

// What the ids of a group count, by channel and use_global_device_ids.
enum class Ids : uint8_t { kReplicas, kReplicasOfAllPartitions, kPartitions, kAll };

// Whether each position is in a group. A broadcast gives zeros to those that are in none.
enum class Cover : uint8_t { kAll, kSome };

// Zero where the number of positions is not known.
struct Groups {
  int64_t size = 0;  // members of each; 0 if they differ or are not known
};

int64_t IdsOf(const Positions& positions, Ids ids) {
  if (positions.replicas == 0) return 0;
  if (ids == Ids::kPartitions) return positions.partitions;
  return ids == Ids::kAll ? positions.replicas * positions.partitions : positions.replicas;
}

// `cover`: each position is in a group.
absl::Status CheckListed(const google::protobuf::RepeatedPtrField<xla::hlo::ReplicaGroup>& groups,
                         Cover cover, int64_t& total, int64_t& size) {
  std::vector<int64_t> ids;
  size = groups.empty() ? 0 : groups[0].replica_ids_size();
  for (const auto& group : groups) {
    if (group.replica_ids_size() == 0) return Bad("one of its groups is empty");
    if (group.replica_ids_size() != size) size = 0;
    ids.insert(ids.end(), group.replica_ids().begin(), group.replica_ids().end());
  }
  if (cover == Cover::kSome) {
    const int64_t known = total == 0 ? kPositionsMax : total;
    if (AreDistinct(ids, known)) return absl::OkStatus();
    return Bad("its groups hold an id twice, or one outside of the program's ", known);
  }
  total = static_cast<int64_t>(ids.size());
  if (!IsPermutation(ids, total))
    return Bad("its groups do not hold each id from 0 to ", total - 1, " once");
  return absl::OkStatus();
}

absl::Status CheckIota(const xla::hlo::IotaReplicaGroupList& list, int64_t& total, int64_t& size) {
  size = list.num_devices_per_group();
  const bool is_small = size > 0 && list.num_replica_groups() > 0 && size <= kPositionsMax &&
                        list.num_replica_groups() <= kPositionsMax;
  if (!is_small || size * list.num_replica_groups() > kPositionsMax)
    return Bad("it has ", list.num_replica_groups(), " groups of ", size);
  total = size * list.num_replica_groups();
  return CheckIotaForm(SpanOf(list.iota_reshape_dims()), list.iota_transpose_perm(), total);
}

absl::Status CheckMeshGroups(const xla::hlo::MeshAxesReplicaGroupList& list, int64_t& total,
                             int64_t& size) {
  GANGWAY_ASSIGN_OR_RETURN(total, CheckMesh(list.mesh()));
  GANGWAY_ASSIGN_OR_RETURN(size, CheckAxes(list.mesh(), list.axes()));
  return absl::OkStatus();
}

// Exactly one way of giving groups, or none: then all are one group.
absl::StatusOr<Groups> CheckGroups(const Site& site, Ids ids, Cover cover = Cover::kAll) {
  const Instruction& self = site.self;
  const auto& listed = self.collective_device_list();
  const int forms = (self.replica_groups_size() > 0 ? 1 : 0) +
                    (listed.replica_groups_size() > 0 ? 1 : 0) +
                    (listed.has_iota_replica_group_list() ? 1 : 0) +
                    (self.has_iota_collective_device_list() ? 1 : 0) +
                    (self.has_mesh_axes_replica_group_list() ? 1 : 0);
  if (forms > 1) return Bad("it gives its groups twice");
  const int64_t expected = IdsOf(site.program.positions, ids);
  int64_t total = expected, size = expected;
  if (self.replica_groups_size() > 0) {
    GANGWAY_RETURN_IF_ERROR(CheckListed(self.replica_groups(), cover, total, size));
  } else if (listed.replica_groups_size() > 0) {
    GANGWAY_RETURN_IF_ERROR(CheckListed(listed.replica_groups(), cover, total, size));
  } else if (listed.has_iota_replica_group_list()) {
    GANGWAY_RETURN_IF_ERROR(CheckIota(listed.iota_replica_group_list(), total, size));
  } else if (self.has_iota_collective_device_list()) {
    GANGWAY_RETURN_IF_ERROR(CheckIota(self.iota_collective_device_list(), total, size));
  } else if (self.has_mesh_axes_replica_group_list()) {
    GANGWAY_RETURN_IF_ERROR(CheckMeshGroups(self.mesh_axes_replica_group_list(), total, size));
  }
  if (total > kPositionsMax) return Bad("its groups have ", total, " members");
  if (expected != 0 && total != expected)
    return Bad("its groups have ", total, " members, and the program ", expected);
  if (ids == Ids::kReplicasOfAllPartitions) size *= site.program.positions.partitions;
  return Groups{.size = size};
}

// For collectives that reduce or gather.
absl::StatusOr<Groups> CheckReducingGroups(const Site& site) {
  const bool has_channel = site.self.channel_id() > 0;
  if (site.self.use_global_device_ids() && !has_channel)
    return Bad("it uses global ids without a channel");
  if (site.self.use_global_device_ids()) return CheckGroups(site, Ids::kAll);
  return CheckGroups(site, has_channel ? Ids::kReplicasOfAllPartitions : Ids::kReplicas);
}

absl::StatusOr<Groups> CheckMovingGroups(const Site& site, Cover cover = Cover::kAll) {
  return CheckGroups(site, site.self.channel_id() > 0 ? Ids::kPartitions : Ids::kReplicas, cover);
}

// XLA takes the root of a reduction for all of it where it widens a collective of small elements, and ends its process
// if that is not an operation of two values. Its runtimes know no others either.
absl::Status CheckReduction(const Site& site) {
  constexpr std::string_view kOperations[] = {"add", "and", "maximum", "minimum", "multiply", "or"};
  for (const Shape* operand : site.operands) {
    const int type[] = {operand->element_type()};
    GANGWAY_RETURN_IF_ERROR(ExpectReducer(*site.callees[0], type));
  }
  const std::string_view operation = site.callees[0]->operation;
  if (std::ranges::find(kOperations, operation) != std::end(kOperations)) return absl::OkStatus();
  return NotTaken(
      "its reduction is not one add, multiply, minimum, maximum, \"and\" or \"or\" of its two "
      "parameters",
      operation.empty() ? "" : ", but one ", std::string(operation),
      ": gather the values, and reduce them on each device");
}

absl::StatusOr<int64_t> Along(const Site& site) {
  for (const Shape* operand : site.operands)
    if (site.self.dimensions_size() != 1 ||
        !AreDistinct(SpanOf(site.self.dimensions()), Rank(*operand)))
      return Bad("it does not name a dimension of ", Text(*operand));
  return site.self.dimensions(0);
}

// The result's dimension is the operand's times (or by) the size of a group, which is read off where it is not known.
absl::Status ExpectScaled(const Site& site, int64_t along, int64_t members, bool grows) {
  const bool is_one = site.operands.size() == 1;
  if (!is_one && (!IsTuple(site.shape()) ||
                  static_cast<size_t>(site.shape().tuple_shapes_size()) != site.operands.size()))
    return Bad("its shape is ", Text(site.shape()), " for ", site.operands.size(), " operands");
  for (size_t i = 0; i < site.operands.size(); ++i) {
    const Shape& from = site.operand(i);
    const Shape& to = is_one ? site.shape() : site.shape().tuple_shapes(static_cast<int>(i));
    bool fits = IsArray(to) && to.element_type() == from.element_type() && Rank(to) == Rank(from);
    for (int64_t d = 0; fits && d < Rank(from); ++d)
      fits = d == along || Dim(to, d) == Dim(from, d);
    if (!fits) return Bad("it makes ", Text(to), " of ", Text(from));
    const int64_t small = Dim(grows ? from : to, along), large = Dim(grows ? to : from, along);
    if (small == 0 && members == 1)  // XLA's CPU compiler ends its process over it
      return NotTaken("it has no elements, and one member: leave it out");
    const bool divides = small == 0 ? large == 0 : large % small == 0;
    if (!divides || (members != 0 && large != small * members))
      return Bad("it makes ", Text(to), " of ", Text(from), " in groups of ", members);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAllReduce(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_RETURN_IF_ERROR(CheckReducingGroups(site));
  GANGWAY_RETURN_IF_ERROR(CheckReduction(site));
  std::vector<Shape> results;
  for (const Shape* operand : site.operands) results.push_back(*operand);
  return ExpectResults(site, results);
}

absl::Status CheckAllGather(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_ASSIGN_OR_RETURN(const Groups groups, CheckReducingGroups(site));
  GANGWAY_ASSIGN_OR_RETURN(const int64_t along, Along(site));
  return ExpectScaled(site, along, groups.size, /*grows=*/true);
}

absl::Status CheckReduceScatter(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_ASSIGN_OR_RETURN(const Groups groups, CheckReducingGroups(site));
  GANGWAY_RETURN_IF_ERROR(CheckReduction(site));
  GANGWAY_ASSIGN_OR_RETURN(const int64_t along, Along(site));
  return ExpectScaled(site, along, groups.size, /*grows=*/false);
}

absl::Status CheckAllToAll(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_ASSIGN_OR_RETURN(const Groups groups, CheckMovingGroups(site));
  if (site.self.dimensions_size() > 0) {
    GANGWAY_ASSIGN_OR_RETURN(const int64_t along, Along(site));
    if (site.operands.size() != 1 ||
        (groups.size != 0 && Dim(site.operand(0), along) % groups.size != 0))
      return Bad("it splits ", Text(site.operand(0)), " among ", groups.size, " members");
    return ExpectShape(site, site.operand(0));
  }
  std::vector<Shape> results;
  for (const Shape* operand : site.operands) {
    if (!Same(*operand, site.operand(0)))
      return Bad("its operands differ: ", Text(site.operand(0)), " and ", Text(*operand));
    results.push_back(*operand);
  }
  if (groups.size != 0 && static_cast<int64_t>(results.size()) != groups.size)
    return Bad("it has ", results.size(), " operands for ", groups.size, " members");
  if (!IsTuple(site.shape())) return Bad("its shape is ", Text(site.shape()));
  if (results.size() > 1) return ExpectResults(site, results);
  return site.shape().tuple_shapes_size() == 1 && Same(site.shape().tuple_shapes(0), results[0])
             ? absl::OkStatus()
             : Bad("its shape is ", Text(site.shape()));
}

// Operands: what to send, where to receive, and four vectors of offsets and sizes, whose values are checked when the
// collective runs.
absl::Status CheckRaggedAllToAll(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_ASSIGN_OR_RETURN(const Groups groups, CheckMovingGroups(site));
  const Shape& from = site.operand(0);
  const Shape& to = site.operand(1);
  bool fits = from.element_type() == to.element_type() && Rank(from) == Rank(to) && Rank(to) > 0;
  for (int64_t d = 1; fits && d < Rank(to); ++d) fits = Dim(from, d) == Dim(to, d);
  if (!fits) return Bad("it sends ", Text(from), " into ", Text(to));
  const Shape& offsets = site.operand(2);
  if (!IsInteger(offsets.element_type()) || Rank(offsets) != 1 ||
      (groups.size != 0 && Dim(offsets, 0) % groups.size != 0))
    return Bad("its offsets are ", Text(offsets), " for ", groups.size, " members");
  for (size_t i = 3; i < 6; ++i)
    if (!Same(site.operand(i), offsets)) return Bad("operand ", i, " is not like its offsets");
  return ExpectShape(site, to);
}

absl::Status CheckCollectivePermute(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  std::vector<int64_t> sources, targets;
  for (const auto& pair : site.self.source_target_pairs()) {
    sources.push_back(pair.source());
    targets.push_back(pair.target());
  }
  const int64_t known =
      IdsOf(site.program.positions, site.self.channel_id() > 0 ? Ids::kPartitions : Ids::kReplicas);
  const int64_t limit = known == 0 ? kPositionsMax : known;
  if (!AreDistinct(sources, limit) || !AreDistinct(targets, limit))
    return Bad("its pairs name a position twice, or one outside of the program's ", limit);
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckCollectiveBroadcast(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  GANGWAY_RETURN_IF_ERROR(CheckMovingGroups(site, Cover::kSome));
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckPositionId(const Site& site) { return ExpectArray(site, xla::TYPE_U32, {}); }

}  // namespace gangway::compiler
