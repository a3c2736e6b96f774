// Implementation of describe.h.
#include "gangway/collective/lowering/describe.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/xla/dtype.h"

namespace gangway::collective {
namespace {

using xla::Collective;
using xla::HloInstructionEditProto;
using xla::ShapeProto;

constexpr std::array<std::pair<std::string_view, Collective::Kind>, 7> kKinds = {{
    {"all-gather", Collective::ALL_GATHER},
    {"all-reduce", Collective::ALL_REDUCE},
    {"all-to-all", Collective::ALL_TO_ALL},
    {"collective-broadcast", Collective::BROADCAST},
    {"collective-permute", Collective::PERMUTE},
    {"ragged-all-to-all", Collective::RAGGED_ALL_TO_ALL},
    {"reduce-scatter", Collective::REDUCE_SCATTER},
}};

constexpr std::array<std::pair<std::string_view, Collective::Reduction>, 6> kReductions = {{
    {"add", Collective::SUM},
    {"multiply", Collective::PRODUCT},
    {"minimum", Collective::MIN},
    {"maximum", Collective::MAX},
    {"and", Collective::AND},
    {"or", Collective::OR},
}};

constexpr size_t kRaggedOperands = 6;
constexpr size_t kRaggedLists = 2;  // the first of them

absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

Collective::Kind KindOf(std::string_view opcode) {
  const auto* kind = std::ranges::find(kKinds, opcode, &decltype(kKinds)::value_type::first);
  return kind == kKinds.end() ? Collective::KIND_UNSPECIFIED : kind->second;
}

// One operation of both parameters. A reducer with more in it would be another function.
absl::StatusOr<Collective::Reduction> ReductionOf(const xla::HloComputationEditProto* reducer) {
  if (reducer == nullptr) return Wrong("it names no reduction");
  std::vector<int64_t> parameters;
  const HloInstructionEditProto* root = nullptr;
  for (const HloInstructionEditProto& instruction : reducer->instructions()) {
    if (instruction.opcode() == "parameter") parameters.push_back(instruction.id());
    if (instruction.id() == reducer->root_id()) root = &instruction;
  }
  if (root == nullptr || parameters.size() != 2 || reducer->instructions_size() != 3 ||
      !std::is_permutation(parameters.begin(), parameters.end(), root->operand_ids().begin(),
                           root->operand_ids().end())) {
    return absl::UnimplementedError(
        absl::StrCat("its reduction ", reducer->name(), " is not one operation of two values"));
  }
  const auto* reduction = std::ranges::find(kReductions, std::string_view(root->opcode()),
                                            &decltype(kReductions)::value_type::first);
  if (reduction == kReductions.end())
    return absl::UnimplementedError(absl::StrCat("its reduction is ", root->opcode()));
  return reduction->second;
}

// The dimensions from major to minor.
absl::StatusOr<std::vector<int64_t>> PhysicalOrder(const ShapeProto& shape) {
  const xla::LayoutProto& layout = shape.layout();
  const int64_t rank = shape.dimensions_size();
  if (!layout.tiles().empty()) return absl::UnimplementedError("an array of it is tiled");
  std::vector<int64_t> order(layout.minor_to_major().rbegin(), layout.minor_to_major().rend());
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (int64_t i = 0; i < std::max<int64_t>(rank, static_cast<int64_t>(sorted.size())); ++i) {
    if (rank != static_cast<int64_t>(sorted.size()) || sorted[i] != i)
      return Wrong("the layout of an array of it does not fit its dimensions");
  }
  return order;
}

absl::StatusOr<int64_t> BytesOf(const ShapeProto& shape) {
  const std::vector<int64_t> dims(shape.dimensions().begin(), shape.dimensions().end());
  return xla::DenseBytes(shape.element_type(), dims);
}

// An array as pieces along `dimension`; -1: as one piece.
absl::StatusOr<Collective::Operand> Extents(const ShapeProto& shape, int64_t dimension) {
  const int32_t type = shape.element_type();
  if (type == xla::TYPE_TUPLE || type == xla::TYPE_TOKEN || type == xla::TYPE_OPAQUE_TYPE ||
      xla::IsNarrow(type)) {
    return absl::UnimplementedError(
        absl::StrCat("its elements are ", std::string(xla::ElementName(type))));
  }
  for (bool is_dynamic : shape.is_dynamic_dimension())
    if (is_dynamic) return absl::UnimplementedError("an array of it has a dynamic dimension");
  GANGWAY_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(shape));
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> order, PhysicalOrder(shape));
  if (dimension < -1 || dimension >= shape.dimensions_size())
    return Wrong(
        absl::StrCat("it works along dimension ", dimension, " of ", shape.dimensions_size()));
  int64_t outer = 1;
  for (size_t i = 0; dimension >= 0 && order[i] != dimension; ++i)
    outer *= shape.dimensions(order[i]);
  Collective::Operand operand;
  operand.set_element_type(type);
  operand.set_outer(bytes == 0 ? 0 : outer);
  operand.set_piece_bytes(bytes == 0 ? 0 : bytes / outer);
  return operand;
}

// The same type and order in memory, and the same dimensions but for `dimension`, where b has `factor` times a's.
absl::Status CheckAlike(const ShapeProto& a, const ShapeProto& b, int64_t dimension,
                        int64_t factor) {
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> order, PhysicalOrder(a));
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> other, PhysicalOrder(b));
  bool alike = a.element_type() == b.element_type() && a.dimensions_size() == b.dimensions_size();
  for (int i = 0; alike && i < a.dimensions_size(); ++i) {
    const int64_t times = i == dimension ? factor : 1;
    alike = b.dimensions(i) % times == 0 && a.dimensions(i) == b.dimensions(i) / times;
  }
  if (!alike) return Wrong("its operands and results do not fit together");
  if (order != other)
    return absl::UnimplementedError("an operand and its result are laid out differently");
  return absl::OkStatus();
}

std::vector<const ShapeProto*> Parts(const ShapeProto& shape) {
  if (shape.element_type() != xla::TYPE_TUPLE) return {&shape};
  std::vector<const ShapeProto*> parts;
  for (const ShapeProto& part : shape.tuple_shapes()) parts.push_back(&part);
  return parts;
}

// Along which dimension it gathers, scatters or exchanges.
absl::StatusOr<int64_t> OneDimension(const HloInstructionEditProto& instruction) {
  if (instruction.dimensions_size() == 1) return instruction.dimensions(0);
  return Wrong(absl::StrCat("it names ", instruction.dimensions_size(), " dimensions"));
}

// An array as its rows, which lie one after another.
absl::StatusOr<Collective::Operand> Rows(const ShapeProto& shape) {
  GANGWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> order, PhysicalOrder(shape));
  if (order.empty() || order[0] != 0)
    return absl::UnimplementedError("the rows of an array of it do not lie one after another");
  GANGWAY_ASSIGN_OR_RETURN(Collective::Operand operand, Extents(shape, -1));
  const std::vector<int64_t> row(shape.dimensions().begin() + 1, shape.dimensions().end());
  GANGWAY_ASSIGN_OR_RETURN(const int64_t bytes, xla::DenseBytes(shape.element_type(), row));
  operand.set_outer(shape.dimensions(0));
  operand.set_piece_bytes(bytes);
  return operand;
}

// Offsets or sizes.
absl::Status CheckList(const ShapeProto& list, int64_t entries, int64_t members) {
  const int32_t type = list.element_type();
  if (type != xla::TYPE_S32 && type != xla::TYPE_S64 && type != xla::TYPE_U32 &&
      type != xla::TYPE_U64) {
    return absl::UnimplementedError(
        absl::StrCat("its offsets and sizes are of type ", std::string(xla::ElementName(type))));
  }
  if (list.dimensions_size() != 1)
    return absl::UnimplementedError("its offsets and sizes are not lists");
  if (list.dimensions(0) != entries) return Wrong("its offsets and sizes differ in number");
  if (entries == 0 || entries % members != 0)
    return Wrong(absl::StrCat("it has ", entries, " offsets for ", members, " members"));
  return absl::OkStatus();
}

// Rows, what the result is where no row arrives, and four lists.
absl::Status AddRagged(const HloInstructionEditProto& instruction,
                       const std::vector<const ShapeProto*>& operands, int64_t members,
                       Collective& described) {
  if (operands.size() != kRaggedOperands) return Wrong("it does not have six operands");
  const ShapeProto& before = *operands[1];
  ShapeProto rows = *operands[0];
  for (const ShapeProto* operand : operands) {
    GANGWAY_ASSIGN_OR_RETURN(*described.add_operands(), Rows(*operand));
  }
  for (size_t i = kRaggedLists; i < kRaggedOperands; ++i) {
    const ShapeProto& first = *operands[kRaggedLists];
    const int64_t entries = first.dimensions_size() == 1 ? first.dimensions(0) : 0;
    GANGWAY_RETURN_IF_ERROR(CheckList(*operands[i], entries, members));
  }
  GANGWAY_RETURN_IF_ERROR(CheckAlike(before, instruction.shape(), -1, 1));
  rows.set_dimensions(0, before.dimensions(0));  // the one in which they may differ
  return CheckAlike(rows, before, -1, 1);
}

// What a member sends or gets, whichever is less, of each operand.
absl::Status AddOperands(const HloInstructionEditProto& instruction,
                         const std::vector<const ShapeProto*>& operands, int64_t members,
                         Collective& described) {
  const std::vector<const ShapeProto*> results = Parts(instruction.shape());
  if (operands.empty() || results.size() != operands.size()) {
    return Wrong(
        absl::StrCat("it has ", operands.size(), " operands and ", results.size(), " results"));
  }
  int64_t dimension = -1;
  const Collective::Kind kind = described.kind();
  if (kind == Collective::ALL_GATHER || kind == Collective::REDUCE_SCATTER ||
      kind == Collective::ALL_TO_ALL) {
    GANGWAY_ASSIGN_OR_RETURN(dimension, OneDimension(instruction));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool scatters = kind == Collective::REDUCE_SCATTER;
    const ShapeProto& smaller = scatters ? *results[i] : *operands[i];
    const ShapeProto& larger = scatters ? *operands[i] : *results[i];
    GANGWAY_ASSIGN_OR_RETURN(Collective::Operand operand, Extents(smaller, dimension));
    const bool grows = kind == Collective::ALL_GATHER || scatters;
    GANGWAY_RETURN_IF_ERROR(CheckAlike(smaller, larger, dimension, grows ? members : 1));
    if (kind == Collective::ALL_TO_ALL) {
      if (smaller.dimensions(static_cast<int>(dimension)) % members != 0)
        return Wrong("its group does not divide the dimension that it exchanges");
      operand.set_piece_bytes(operand.piece_bytes() / members);
    }
    *described.add_operands() = std::move(operand);
  }
  return absl::OkStatus();
}

// What the opcodes begin with.
constexpr std::string_view kCommunication[] = {"all-gather", "all-reduce",     "all-to-all",
                                               "async-",     "collective-",    "ragged-",
                                               "recv",       "reduce-scatter", "send"};

}  // namespace

bool IsCollective(std::string_view opcode) {
  return KindOf(opcode) != Collective::KIND_UNSPECIFIED;
}

bool IsOtherCommunication(std::string_view opcode) {
  if (IsCollective(opcode)) return false;
  return std::ranges::any_of(kCommunication,
                             [&](std::string_view prefix) { return opcode.starts_with(prefix); });
}

bool MayCommunicate(std::string_view program) {
  return std::ranges::any_of(kCommunication, [&](std::string_view prefix) {
    return program.find(prefix) != std::string_view::npos;
  });
}

absl::StatusOr<Collective> Describe(const HloInstructionEditProto& instruction,
                                    const std::vector<const ShapeProto*>& operands,
                                    const xla::HloComputationEditProto* reducer,
                                    const xla::CollectiveGroups& groups,
                                    const Positions& positions) {
  Collective described;
  described.set_kind(KindOf(instruction.opcode()));
  if (described.kind() == Collective::ALL_TO_ALL && instruction.dimensions().empty())
    described.set_kind(Collective::ALL_TO_ALL_TUPLE);
  int64_t members = 1;
  if (described.kind() == Collective::PERMUTE) {
    GANGWAY_RETURN_IF_ERROR(AddPairs(instruction, positions, described));
  } else if (described.kind() != Collective::BROADCAST) {
    GANGWAY_RETURN_IF_ERROR(CheckComplete(groups, positions));
    if (described.kind() != Collective::ALL_REDUCE) {
      GANGWAY_ASSIGN_OR_RETURN(members, GroupSize(groups));
    }
  }
  if (described.kind() == Collective::ALL_REDUCE ||
      described.kind() == Collective::REDUCE_SCATTER) {
    GANGWAY_ASSIGN_OR_RETURN(const Collective::Reduction reduction, ReductionOf(reducer));
    described.set_reduction(reduction);
  }
  if (described.kind() == Collective::ALL_TO_ALL_TUPLE &&
      static_cast<int64_t>(operands.size()) != members)
    return Wrong(absl::StrCat("it has ", operands.size(), " operands for ", members, " members"));
  if (described.kind() == Collective::RAGGED_ALL_TO_ALL) {
    GANGWAY_RETURN_IF_ERROR(AddRagged(instruction, operands, members, described));
  } else {
    GANGWAY_RETURN_IF_ERROR(AddOperands(instruction, operands, members, described));
  }
  return described;
}

}  // namespace gangway::collective
