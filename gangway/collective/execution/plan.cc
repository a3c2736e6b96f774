// Implementation of plan.h.
#include "gangway/collective/execution/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/shown_name.h"
#include "gangway/base/status.h"
#include "gangway/collective/execution/reduce.h"
#include "gangway/xla/dtype.h"

namespace gangway::collective {
namespace {

using xla::Collective;

constexpr uint64_t kOperandBytesMax = uint64_t{1} << 46;

bool Reduces(Collective::Kind kind) {
  return kind == Collective::ALL_REDUCE || kind == Collective::REDUCE_SCATTER;
}

absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

PositionList One(uint32_t position) {
  return std::make_shared<const std::vector<uint32_t>>(1, position);
}

struct Grouping {
  Roles roles;
  size_t largest = 0;  // members of a group
  size_t least = 0;
  size_t members = 0;  // of all groups
};

// The roles in these groups. `broadcasts`: only the first member of a group sends.
absl::StatusOr<Grouping> MakeGrouping(const xla::CollectiveGroups& groups, size_t position_count,
                                      bool broadcasts) {
  std::vector<Role> roles(position_count);
  Grouping grouping{.least = std::numeric_limits<size_t>::max()};
  for (const auto& group : groups.groups()) {
    const auto shared = std::make_shared<const std::vector<uint32_t>>(group.positions().begin(),
                                                                      group.positions().end());
    const std::vector<uint32_t>& positions = *shared;
    const PositionList sources = broadcasts && !positions.empty() ? One(positions[0]) : shared;
    grouping.largest = std::max(grouping.largest, positions.size());
    grouping.least = std::min(grouping.least, positions.size());
    grouping.members += positions.size();
    for (size_t rank = 0; rank < positions.size(); ++rank) {
      if (positions[rank] >= position_count)
        return Wrong(absl::StrCat("position ", positions[rank], " of a group does not exist"));
      Role& role = roles[positions[rank]];
      if (role.sources != nullptr)
        return Wrong(absl::StrCat("position ", positions[rank], " is in two groups"));
      role.rank = rank;
      role.sources = sources;
      if (!broadcasts || rank == 0) role.readers = shared;
    }
  }
  grouping.roles = Roles(std::move(roles));
  return grouping;
}

absl::StatusOr<Roles> MakePermutation(const Collective& meaning, size_t position_count) {
  if (meaning.sources_size() != meaning.targets_size()) return Wrong("a pair of it is not whole");
  std::vector<Role> roles(position_count);
  for (int i = 0; i < meaning.sources_size(); ++i) {
    const uint32_t source = meaning.sources(i), target = meaning.targets(i);
    if (source >= position_count || target >= position_count)
      return Wrong("a position of its pairs does not exist");
    if (roles[target].sources != nullptr)
      return Wrong(absl::StrCat("position ", target, " has two sources"));
    if (roles[source].readers != nullptr)
      return Wrong(absl::StrCat("position ", source, " has two targets"));
    roles[target].sources = One(source);
    roles[source].readers = One(target);
  }
  return Roles(std::move(roles));
}

// Makes the roles of one table's collectives, each set of groups and pairs once.
class RoleMaker {
 public:
  RoleMaker(const xla::CollectiveTable& table, size_t position_count)
      : table_(table), position_count_(position_count) {}

  absl::Status Add(PlannedCollective& planned) {
    return planned.meaning.kind() == Collective::PERMUTE ? AddPermute(planned) : AddGroups(planned);
  }

 private:
  absl::Status Count() {
    made_ += position_count_;
    if (made_ <= kRolesMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the program has more than ", kRolesMax / position_count_,
                     " different sets of groups of ", position_count_, " positions"));
  }

  absl::Status AddGroups(PlannedCollective& planned) {
    const Collective::Kind kind = planned.meaning.kind();
    const uint32_t index = planned.meaning.groups();
    if (index >= static_cast<uint32_t>(table_.groups_size()))
      return Wrong("its groups are not in the table");
    const bool broadcasts = kind == Collective::BROADCAST;
    auto [found, is_new] = groupings_.try_emplace({index, broadcasts});
    if (is_new) {
      GANGWAY_RETURN_IF_ERROR(Count());
      GANGWAY_ASSIGN_OR_RETURN(found->second, MakeGrouping(table_.groups(static_cast<int>(index)),
                                                           position_count_, broadcasts));
    }
    const Grouping& grouping = found->second;
    if (!broadcasts && grouping.members != position_count_)
      return Wrong("a position is in none of its groups");
    if (kind != Collective::ALL_REDUCE && !broadcasts && grouping.least != grouping.largest)
      return Wrong("its groups are not of one size");
    planned.group_size = grouping.largest;
    planned.roles = grouping.roles;
    return absl::OkStatus();
  }

  absl::Status AddPermute(PlannedCollective& planned) {
    const Collective& meaning = planned.meaning;
    auto [found, is_new] =
        permutations_.try_emplace({{meaning.sources().begin(), meaning.sources().end()},
                                   {meaning.targets().begin(), meaning.targets().end()}});
    if (is_new) {
      GANGWAY_RETURN_IF_ERROR(Count());
      GANGWAY_ASSIGN_OR_RETURN(found->second, MakePermutation(meaning, position_count_));
    }
    planned.group_size = 1;
    planned.roles = found->second;
    return absl::OkStatus();
  }

  using Positions = std::vector<uint32_t>;
  const xla::CollectiveTable& table_;
  const size_t position_count_;
  size_t made_ = 0;
  std::map<std::pair<uint32_t, bool>, Grouping> groupings_;  // by index; whether it broadcasts
  std::map<std::pair<Positions, Positions>, Roles> permutations_;
};

// A list of a ragged exchange. `entries`: of all its lists.
absl::Status CheckList(const Collective::Operand& list, uint64_t entries, size_t group_size) {
  const int32_t type = list.element_type();
  const bool is_wide = type == xla::TYPE_S64 || type == xla::TYPE_U64;
  if (!is_wide && type != xla::TYPE_S32 && type != xla::TYPE_U32) {
    return absl::UnimplementedError(absl::StrCat(
        "offsets and sizes of type ", std::string(xla::ElementName(type)), " are not implemented"));
  }
  if (list.piece_bytes() != (is_wide ? sizeof(int64_t) : sizeof(int32_t)))
    return Wrong("an entry of a list of it is not one number");
  if (list.outer() != entries) return Wrong("its lists are not of one length");
  if (entries == 0 || entries % group_size != 0) {
    return Wrong(absl::StrCat("its lists have ", entries, " entries for ", group_size, " members"));
  }
  return absl::OkStatus();
}

absl::Status AddRaggedOperands(PlannedCollective& planned) {
  const Collective& meaning = planned.meaning;
  if (meaning.operands_size() != kRaggedOperands) return Wrong("it does not have six operands");
  const auto at = [&](size_t i) -> const auto& { return meaning.operands(static_cast<int>(i)); };
  for (size_t i = 0; i < kRaggedOperands; ++i) {
    const uint64_t rows = at(i).outer(), row = at(i).piece_bytes();
    if (row != 0 && rows > kOperandBytesMax / row)
      return absl::ResourceExhaustedError("an operand of it is too large");
    const bool is_list = i >= kRaggedLists;
    if (is_list) {
      GANGWAY_RETURN_IF_ERROR(CheckList(at(i), at(kRaggedLists).outer(), planned.group_size));
    }
    const bool is_sent = i != kRaggedBefore && i != kRaggedOperands - 1;
    planned.operand_bytes.push_back(rows * row);
    planned.units.push_back(!is_sent ? 0 : is_list ? rows * row / planned.group_size : rows * row);
  }
  if (at(kRaggedRows).piece_bytes() != at(kRaggedBefore).piece_bytes())
    return Wrong("the rows that it sends and those of its result differ in size");
  planned.result_bytes.push_back(planned.operand_bytes[kRaggedBefore]);
  return absl::OkStatus();
}

absl::Status AddOperands(PlannedCollective& planned) {
  if (planned.meaning.kind() == Collective::RAGGED_ALL_TO_ALL) return AddRaggedOperands(planned);
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

// Of a message, for one unit of the operand.
size_t BlocksOf(const PlannedCollective& planned, size_t operand) {
  return SendsBlocks(planned.meaning.kind(), operand) ? std::max<size_t>(planned.group_size, 1) : 1;
}

// Its operands, in the order in which they are sent.
std::vector<size_t> OrderOf(const PlannedCollective& planned) {
  const Collective::Kind kind = planned.meaning.kind();
  if (kind == Collective::ALL_TO_ALL_TUPLE) return {0};  // all travel together, as blocks of one
  std::vector<size_t> order(planned.units.size());
  std::iota(order.begin(), order.end(), 0);
  // Lists first: they say which rows a receiver takes.
  if (kind == Collective::RAGGED_ALL_TO_ALL)
    std::ranges::rotate(order, order.begin() + kRaggedLists);
  return order;
}

// Puts as much into each message as goes: all members do the same. At most `count_max` messages.
absl::Status AddMessages(size_t count_max, PlannedCollective& planned) {
  const Collective::Kind kind = planned.meaning.kind();
  const std::vector<size_t> order = OrderOf(planned);
  size_t count = 0;  // at least as many as there will be
  for (const size_t operand : order) {
    const size_t units_max =
        kMessageBytes / BlocksOf(planned, operand) / kSegmentAlignment * kSegmentAlignment;
    if (units_max == 0) {
      return absl::UnimplementedError(
          absl::StrCat("a group of ", planned.group_size, " positions is too large for it"));
    }
    count += planned.units[operand] / units_max + 1;
    if (count > count_max) return absl::ResourceExhaustedError("its operands are too large");
  }
  Message open;
  auto close = [&] {
    if (!open.segments.empty()) planned.messages.push_back(std::exchange(open, {}));
  };
  for (const size_t operand : order) {
    const size_t units = planned.units[operand], blocks = BlocksOf(planned, operand);
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

// Operands that are reduced in parts, or differ by their reader, are read directly by those that need them; so are
// those of which one message cannot hold all members'.
Route RouteOf(const PlannedCollective& planned) {
  const Collective::Kind kind = planned.meaning.kind();
  if (kind != Collective::ALL_REDUCE && kind != Collective::ALL_GATHER) return Route::kDirect;
  if (planned.group_size <= kDirectMembersMax || planned.messages.size() != 1 ||
      planned.messages[0].in_parts ||
      planned.messages[0].bytes > kMessageBytes / planned.group_size)
    return Route::kDirect;
  return Route::kRelayed;
}

absl::Status CheckKind(Collective::Kind kind) {
  switch (kind) {
    case Collective::ALL_REDUCE:
    case Collective::ALL_GATHER:
    case Collective::REDUCE_SCATTER:
    case Collective::ALL_TO_ALL:
    case Collective::ALL_TO_ALL_TUPLE:
    case Collective::BROADCAST:
    case Collective::PERMUTE:
    case Collective::RAGGED_ALL_TO_ALL:
      return absl::OkStatus();
    default:
      return Wrong("its kind is not known");
  }
}

absl::Status PlanOne(size_t messages_max, RoleMaker& roles, PlannedCollective& planned) {
  GANGWAY_RETURN_IF_ERROR(CheckKind(planned.meaning.kind()));
  GANGWAY_RETURN_IF_ERROR(roles.Add(planned));
  GANGWAY_RETURN_IF_ERROR(AddOperands(planned));
  GANGWAY_RETURN_IF_ERROR(AddMessages(messages_max, planned));
  planned.route = RouteOf(planned);
  return absl::OkStatus();
}

uint64_t PositionsOf(const xla::CollectiveTable& table) {
  return uint64_t{table.replica_count()} * table.partition_count();
}

}  // namespace

bool SendsBlocks(Collective::Kind kind, size_t operand) {
  if (kind == Collective::RAGGED_ALL_TO_ALL) return operand >= kRaggedLists;
  return kind == Collective::REDUCE_SCATTER || kind == Collective::ALL_TO_ALL ||
         kind == Collective::ALL_TO_ALL_TUPLE;
}

std::string PlannedCollective::Name() const {
  const std::string name = ShownName(meaning.name());  // the program's own choice, like the source
  return meaning.source().empty() ? name : absl::StrCat(name, " at ", ShownName(meaning.source()));
}

absl::StatusOr<std::shared_ptr<const Plan>> Plan::Make(const xla::CollectiveTable& table) {
  const uint64_t positions = PositionsOf(table);
  if (positions == 0 || positions > kPositionsMax)
    return Wrong(absl::StrCat("a table of collectives for ", positions, " positions"));
  std::shared_ptr<Plan> plan(new Plan());
  plan->position_count_ = static_cast<uint32_t>(positions);
  plan->may_diverge_ = table.may_diverge();
  RoleMaker roles(table, positions);
  size_t messages_left = kMessagesMax;
  for (const Collective& collective : table.collectives()) {
    PlannedCollective& planned = plan->collectives_.emplace_back();
    planned.meaning = collective;
    if (const absl::Status status = PlanOne(messages_left, roles, planned); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("collective ", planned.Name(), ": ",
                                                      std::string(status.message())));
    }
    messages_left -= planned.messages.size();
  }
  return plan;
}

std::vector<bool> Plan::Met(std::span<const uint32_t> positions) const {
  std::vector<bool> met(position_count_);
  std::set<std::pair<const void*, size_t>> seen;  // lists, and of relays the rank in them
  const auto add = [&](const PositionList& list) {
    if (list == nullptr || !seen.emplace(list.get(), SIZE_MAX).second) return;
    for (uint32_t each : *list) met[each] = true;
  };
  for (const PlannedCollective& planned : collectives_) {
    for (uint32_t position : positions) {
      const Role& role = planned.roles[position];
      if (planned.route == Route::kDirect) {
        add(role.sources);
        add(role.readers);
      } else if (seen.emplace(role.sources.get(), role.rank).second) {
        const size_t members = role.sources->size();
        for (size_t step = 1; step < members; step *= 2) {
          met[(*role.sources)[(role.rank + step) % members]] = true;
          met[(*role.sources)[(role.rank + members - step) % members]] = true;
        }
      }
    }
  }
  return met;
}

absl::StatusOr<Unpacked> Unpack(const std::string& serialized, size_t positions) {
  xla::LoweredExecutable lowered;
  if (!lowered.ParseFromString(serialized))
    return Wrong("the executable is malformed; compile the program again");
  Unpacked unpacked;
  if (!lowered.table().collectives().empty()) {
    if (const uint64_t expected = PositionsOf(lowered.table()); expected != positions) {
      return Wrong(absl::StrCat("the collectives are of ", expected, " positions, for ", positions,
                                " devices"));
    }
    GANGWAY_ASSIGN_OR_RETURN(unpacked.plan, Plan::Make(lowered.table()));
  }
  unpacked.executable = std::move(*lowered.mutable_executable());
  return unpacked;
}

}  // namespace gangway::collective
