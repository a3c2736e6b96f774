// Implementation of plan.h.
#include "gangway/collective/execution/plan.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/execution/reduce.h"
#include "gangway/xla/dtype.h"

namespace gangway::collective {
namespace {

using xla::Collective;

constexpr uint64_t kPositionsMax = uint64_t{1} << 20;
constexpr uint64_t kOperandBytesMax = uint64_t{1} << 46;

bool Reduces(Collective::Kind kind) {
  return kind == Collective::ALL_REDUCE || kind == Collective::REDUCE_SCATTER;
}

absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

PositionList One(uint32_t position) {
  return std::make_shared<const std::vector<uint32_t>>(1, position);
}

// The roles of a collective whose groups are in the table.
absl::Status AddGroupRoles(const xla::CollectiveTable& table, PlannedCollective& planned) {
  const Collective::Kind kind = planned.meaning.kind();
  if (planned.meaning.groups() >= static_cast<uint32_t>(table.groups_size()))
    return Wrong("its groups are not in the table");
  const bool broadcasts = kind == Collective::BROADCAST;
  size_t members = 0, least = std::numeric_limits<size_t>::max();
  for (const auto& group : table.groups(static_cast<int>(planned.meaning.groups())).groups()) {
    const auto shared = std::make_shared<const std::vector<uint32_t>>(group.positions().begin(),
                                                                      group.positions().end());
    const std::vector<uint32_t>& positions = *shared;
    const PositionList sources = broadcasts && !positions.empty() ? One(positions[0]) : shared;
    planned.group_size = std::max(planned.group_size, positions.size());
    least = std::min(least, positions.size());
    members += positions.size();
    for (size_t rank = 0; rank < positions.size(); ++rank) {
      if (positions[rank] >= planned.roles.size())
        return Wrong(absl::StrCat("position ", positions[rank], " of a group does not exist"));
      Role& role = planned.roles[positions[rank]];
      if (role.sources != nullptr)
        return Wrong(absl::StrCat("position ", positions[rank], " is in two groups"));
      role.rank = rank;
      role.sources = sources;
      if (!broadcasts || rank == 0) role.readers = shared;
    }
  }
  if (!broadcasts && members != planned.roles.size())
    return Wrong("a position is in none of its groups");
  if (kind != Collective::ALL_REDUCE && !broadcasts && least != planned.group_size)
    return Wrong("its groups are not of one size");
  return absl::OkStatus();
}

absl::Status AddPermuteRoles(PlannedCollective& planned) {
  const Collective& meaning = planned.meaning;
  planned.group_size = 1;
  if (meaning.sources_size() != meaning.targets_size()) return Wrong("a pair of it is not whole");
  for (int i = 0; i < meaning.sources_size(); ++i) {
    const uint32_t source = meaning.sources(i), target = meaning.targets(i);
    if (source >= planned.roles.size() || target >= planned.roles.size())
      return Wrong("a position of its pairs does not exist");
    if (planned.roles[target].sources != nullptr)
      return Wrong(absl::StrCat("position ", target, " has two sources"));
    if (planned.roles[source].readers != nullptr)
      return Wrong(absl::StrCat("position ", source, " has two targets"));
    planned.roles[target].sources = One(source);
    planned.roles[source].readers = One(target);
  }
  return absl::OkStatus();
}

absl::Status AddOperands(PlannedCollective& planned) {
  const Collective& meaning = planned.meaning;
  const Collective::Kind kind = meaning.kind();
  if (meaning.operands().empty()) return Wrong("it has no operands");
  if (kind == Collective::ALL_TO_ALL_TUPLE &&
      static_cast<size_t>(meaning.operands_size()) != planned.group_size)
    return Wrong("it has not an operand for each member");
  for (const Collective::Operand& operand : meaning.operands()) {
    const uint64_t outer = operand.outer(), piece = operand.piece_bytes();
    const uint64_t times = std::max<uint64_t>(planned.group_size, 1);
    if (piece != 0 && outer > kOperandBytesMax / times / piece)
      return absl::ResourceExhaustedError("an operand of it is too large");
    const Reduction reduction = FindReduction(meaning.reduction(), operand.element_type());
    if (Reduces(kind)) {
      if (reduction.reducer == nullptr) {
        return absl::UnimplementedError(absl::StrCat(
            Collective::Reduction_Name(meaning.reduction()), " of elements of ",
            std::string(xla::ElementName(operand.element_type())), " is not implemented"));
      }
      if (piece % reduction.element_bytes != 0) return Wrong("a piece of it is not whole elements");
    }
    const size_t units = outer * piece;
    const bool is_block = kind == Collective::ALL_TO_ALL || kind == Collective::REDUCE_SCATTER;
    planned.units.push_back(units);
    planned.operand_bytes.push_back(is_block ? units * times : units);
    planned.result_bytes.push_back(
        kind == Collective::ALL_TO_ALL || kind == Collective::ALL_GATHER ? units * times : units);
  }
  if (kind == Collective::ALL_TO_ALL_TUPLE &&
      std::ranges::any_of(planned.units, [&](size_t each) { return each != planned.units[0]; }))
    return Wrong("its operands are not of one size");
  return absl::OkStatus();
}

size_t Aligned(size_t bytes) {
  return (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
}

// Puts as much into each message as goes: all members do the same.
absl::Status AddMessages(PlannedCollective& planned) {
  const Collective::Kind kind = planned.meaning.kind();
  const size_t blocks = SendsBlocks(kind) ? std::max<size_t>(planned.group_size, 1) : 1;
  const size_t units_max = kMessageBytes / blocks / kSegmentAlignment * kSegmentAlignment;
  if (units_max == 0) {
    return absl::UnimplementedError(
        absl::StrCat("a group of ", planned.group_size, " positions is too large for it"));
  }
  // The operands of a tuple's exchange travel together, as blocks of one.
  const size_t operands = kind == Collective::ALL_TO_ALL_TUPLE ? 1 : planned.units.size();
  Message open;
  auto close = [&] {
    if (!open.segments.empty()) planned.messages.push_back(std::exchange(open, {}));
  };
  for (size_t operand = 0; operand < operands; ++operand) {
    const size_t units = planned.units[operand];
    // A large operand of a reduction has messages of its own, which members reduce in parts.
    const bool in_parts = kind == Collective::ALL_REDUCE && units > kFlatBytes;
    if (in_parts) close();
    for (size_t begin = 0; begin < units;) {
      const size_t room = (kMessageBytes - open.bytes) / blocks / kSegmentAlignment;
      const size_t bytes = std::min(units - begin, room * kSegmentAlignment);
      if (bytes == 0 || (bytes < units - begin && open.bytes != 0)) {
        close();
        continue;
      }
      const size_t stride = Aligned(bytes);
      open.segments.push_back({operand, begin, bytes, open.bytes, stride});
      open.bytes += stride * blocks;
      open.in_parts = in_parts;
      begin += bytes;
      const bool is_full = kind == Collective::ALL_REDUCE && !in_parts && open.bytes >= kFlatBytes;
      if (in_parts || is_full) close();
    }
  }
  close();
  return absl::OkStatus();
}

absl::Status PlanOne(const xla::CollectiveTable& table, PlannedCollective& planned) {
  switch (planned.meaning.kind()) {
    case Collective::ALL_REDUCE:
    case Collective::ALL_GATHER:
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
    case Collective::ALL_TO_ALL_TUPLE:
    case Collective::BROADCAST:
      GANGWAY_RETURN_IF_ERROR(AddGroupRoles(table, planned));
      break;
    case Collective::PERMUTE:
      GANGWAY_RETURN_IF_ERROR(AddPermuteRoles(planned));
      break;
    case Collective::RAGGED_ALL_TO_ALL:
      return absl::UnimplementedError("it is not implemented");
    default:
      return Wrong("its kind is not known");
  }
  GANGWAY_RETURN_IF_ERROR(AddOperands(planned));
  return AddMessages(planned);
}

}  // namespace

bool SendsBlocks(Collective::Kind kind) {
  return kind == Collective::REDUCE_SCATTER || kind == Collective::ALL_TO_ALL ||
         kind == Collective::ALL_TO_ALL_TUPLE;
}

std::string PlannedCollective::Name() const {
  return meaning.source().empty() ? meaning.name()
                                  : absl::StrCat(meaning.name(), " at ", meaning.source());
}

absl::StatusOr<std::shared_ptr<const Plan>> Plan::Make(const xla::CollectiveTable& table) {
  const uint64_t positions = uint64_t{table.replica_count()} * table.partition_count();
  if (positions == 0 || positions > kPositionsMax)
    return Wrong(absl::StrCat("a table of collectives for ", positions, " positions"));
  std::shared_ptr<Plan> plan(new Plan());
  plan->position_count_ = static_cast<uint32_t>(positions);
  for (const Collective& collective : table.collectives()) {
    PlannedCollective& planned = plan->collectives_.emplace_back();
    planned.meaning = collective;
    planned.roles.resize(positions);
    if (const absl::Status status = PlanOne(table, planned); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("collective ", planned.Name(), ": ",
                                                      std::string(status.message())));
    }
  }
  return plan;
}

}  // namespace gangway::collective
