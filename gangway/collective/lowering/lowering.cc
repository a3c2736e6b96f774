// Implementation of lowering.h: rewrites each computation that the chain goes through, and collects the table.
#include "gangway/collective/lowering/lowering.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/lowering/describe.h"
#include "gangway/collective/lowering/groups.h"
#include "gangway/collective/lowering/module.h"
#include "gangway/xla/dtype.h"
#include "gangway/xla/source_line.h"

namespace gangway::collective {
namespace {

using xla::HloComputationEditProto;
using xla::HloInstructionEditProto;
using xla::ShapeProto;

constexpr int64_t kPositionsMax = int64_t{1} << 16;
// In the backend_config of a loop whose length the compiler has found: all positions go round it as often.
constexpr char kKnownTripCount[] = "\"known_trip_count\"";
constexpr int64_t kMembersMax = int64_t{1} << 24;  // of all groups and pairs of a program

ShapeProto ChainShape() {
  ShapeProto shape;
  shape.set_element_type(xla::TYPE_S32);
  shape.mutable_layout();
  return shape;
}

ShapeProto WithChain(ShapeProto shape) {
  ShapeProto both;
  both.set_element_type(xla::TYPE_TUPLE);
  *both.add_tuple_shapes() = std::move(shape);
  *both.add_tuple_shapes() = ChainShape();
  return both;
}

// Integers of less than a byte, which several of one share, as whole bytes; `shape` itself if it has none.
ShapeProto Widened(ShapeProto shape) {
  for (ShapeProto& part : *shape.mutable_tuple_shapes()) part = Widened(std::move(part));
  switch (shape.element_type()) {
    case xla::TYPE_S1:
    case xla::TYPE_S2:
    case xla::TYPE_S4:
      shape.set_element_type(xla::TYPE_S8);
      break;
    case xla::TYPE_U1:
    case xla::TYPE_U2:
    case xla::TYPE_U4:
      shape.set_element_type(xla::TYPE_U8);
      break;
    default:
      return shape;
  }
  shape.mutable_layout()->clear_element_size_in_bits();
  return shape;
}

bool NeedsWidening(const ShapeProto& shape) {
  return xla::IsNarrow(shape.element_type()) &&
         Widened(shape).element_type() != shape.element_type();
}

// The table under construction.
class Table {
 public:
  Table(const Positions& positions, const xla::StackFrameIndexProto& frames)
      : positions_(positions), lines_(xla::SourceLines(frames)) {
    table_.set_replica_count(static_cast<uint32_t>(positions.replicas));
    table_.set_partition_count(static_cast<uint32_t>(positions.partitions));
  }

  void SetMayDiverge() { table_.set_may_diverge(true); }
  void SetWidens() { widens_ = true; }
  bool widens() const { return widens_; }

  // Its number.
  absl::StatusOr<int> Add(const HloInstructionEditProto& instruction,
                          const std::vector<const ShapeProto*>& operands,
                          const HloComputationEditProto* reducer) {
    xla::CollectiveGroups groups;
    if (instruction.opcode() != "collective-permute") {
      GANGWAY_ASSIGN_OR_RETURN(groups, GroupsOf(instruction, positions_));
    }
    GANGWAY_ASSIGN_OR_RETURN(xla::Collective collective,
                             Describe(instruction, operands, reducer, groups, positions_));
    collective.set_name(instruction.name());
    const int64_t frame = instruction.metadata().stack_frame_id();
    if (frame >= 1 && frame <= static_cast<int64_t>(lines_.size()))
      collective.set_source(lines_[frame - 1]);
    GANGWAY_RETURN_IF_ERROR(Count(collective.sources_size()));
    if (!groups.groups().empty()) {
      GANGWAY_ASSIGN_OR_RETURN(const uint32_t index, AddGroups(std::move(groups)));
      collective.set_groups(index);
    }
    *table_.add_collectives() = std::move(collective);
    return table_.collectives_size() - 1;
  }

  xla::CollectiveTable Take() { return std::move(table_); }

 private:
  absl::StatusOr<uint32_t> AddGroups(xla::CollectiveGroups groups) {
    auto [it, is_new] = index_.emplace(groups.SerializeAsString(), table_.groups_size());
    if (is_new) {
      for (const auto& group : groups.groups())
        GANGWAY_RETURN_IF_ERROR(Count(group.positions_size()));
      *table_.add_groups() = std::move(groups);
    }
    return it->second;
  }

  absl::Status Count(int64_t members) {
    members_ += members;
    if (members_ <= kMembersMax) return absl::OkStatus();
    return absl::ResourceExhaustedError("the program's groups and pairs are too many");
  }

  const Positions positions_;
  const std::vector<std::string> lines_;  // by stack frame
  xla::CollectiveTable table_;
  bool widens_ = false;
  std::map<std::string, uint32_t> index_;  // of groups
  int64_t members_ = 0;                    // of all groups and pairs
};

// Rewrites one computation, in the order of its schedule.
class Rewriter {
 public:
  Rewriter(Module& module, Table& table, HloComputationEditProto& computation)
      : module_(module),
        table_(table),
        computation_(computation),
        how_(module.chained(computation.id())) {}

  absl::Status Run() {
    GANGWAY_ASSIGN_OR_RETURN(const std::vector<const HloInstructionEditProto*> order, Order());
    for (const HloInstructionEditProto* instruction : order)
      if (instruction->opcode() == "parameter") GANGWAY_RETURN_IF_ERROR(Parameter(*instruction));
    if (how_ == Chained::kCall) chain_ = ChainParameter();
    for (const HloInstructionEditProto* instruction : order)
      if (instruction->opcode() != "parameter") GANGWAY_RETURN_IF_ERROR(Rewrite(*instruction));
    GANGWAY_RETURN_IF_ERROR(End());
    return Replace();
  }

 private:
  using Sequences = google::protobuf::Map<int64_t, xla::HloScheduleEditProto::Sequence>;
  Sequences& sequences() { return *module_.proto().mutable_schedule()->mutable_sequences(); }

  // All instructions, operands first.
  absl::StatusOr<std::vector<const HloInstructionEditProto*>> Order() {
    for (const HloInstructionEditProto& instruction : computation_.instructions())
      by_id_[instruction.id()] = &instruction;
    std::vector<const HloInstructionEditProto*> order;
    auto scheduled = sequences().find(computation_.id());
    if (scheduled == sequences().end()) {
      for (const HloInstructionEditProto& instruction : computation_.instructions())
        order.push_back(&instruction);
    } else {
      for (int64_t id : scheduled->second.instruction_ids()) {
        auto it = by_id_.find(id);
        if (it == by_id_.end()) return Malformed("its schedule names what does not exist");
        order.push_back(it->second);
      }
    }
    absl::flat_hash_set<int64_t> seen;
    for (const HloInstructionEditProto* instruction : order) {
      for (int64_t operand : instruction->operand_ids())
        if (!seen.contains(operand))
          return Malformed(absl::StrCat(Named(*instruction), " comes before its operand"));
      if (!seen.insert(instruction->id()).second)
        return Malformed(absl::StrCat(Named(*instruction), " is scheduled twice"));
    }
    if (order.size() != by_id_.size()) return Malformed("its schedule is not complete");
    return order;
  }

  int64_t NewId() { return module_.NewId(computation_.id()); }
  HloInstructionEditProto& Emit(std::string name, std::string_view opcode, ShapeProto shape,
                                int64_t id) {
    HloInstructionEditProto& instruction = *instructions_.Add();
    instruction.set_name(std::move(name));
    instruction.set_opcode(std::string(opcode));
    *instruction.mutable_shape() = std::move(shape);
    instruction.set_id(id);
    return instruction;
  }
  int64_t Part(std::string name, ShapeProto shape, int64_t whole, int index, int64_t id) {
    HloInstructionEditProto& part =
        Emit(std::move(name), "get-tuple-element", std::move(shape), id);
    part.set_tuple_index(index);
    part.add_operand_ids(whole);
    return id;
  }
  int64_t Pair(const std::string& name, const ShapeProto& shape, int64_t value, int64_t chain) {
    HloInstructionEditProto& pair = Emit(name, "tuple", WithChain(shape), NewId());
    pair.add_operand_ids(value);
    pair.add_operand_ids(chain);
    return pair.id();
  }
  // `whole`, a value and the chain, takes the place of `original`.
  void Split(const HloInstructionEditProto& original, int64_t whole) {
    Part(original.name(), original.shape(), whole, 0, original.id());
    chain_ = Part(absl::StrCat(original.name(), ".chain"), ChainShape(), whole, 1, NewId());
  }
  const ShapeProto& ShapeOf(int64_t id) const { return by_id_.at(id)->shape(); }

  absl::Status Parameter(const HloInstructionEditProto& instruction) {
    const bool is_paired = how_ == Chained::kState || how_ == Chained::kCondition;
    if (!is_paired) {
      ++parameters_;
      *instructions_.Add() = instruction;
      return absl::OkStatus();
    }
    if (instruction.parameter_number() != 0 || ++parameters_ > 1)
      return Malformed(absl::StrCat(computation_.name(), " has more than one parameter"));
    const int64_t pair = NewId();
    Emit(absl::StrCat(instruction.name(), ".chained"), "parameter", WithChain(instruction.shape()),
         pair);
    Split(instruction, pair);
    return absl::OkStatus();
  }

  int64_t ChainParameter() {
    HloInstructionEditProto& parameter =
        Emit(absl::StrCat(computation_.name(), ".chain"), "parameter", ChainShape(), NewId());
    parameter.set_parameter_number(parameters_);
    return parameter.id();
  }

  // What the chain begins with in the entry. The memory of what goes into a loop or a branch is written there, a
  // constant's cannot be.
  int64_t ChainBefore(const HloInstructionEditProto& instruction) {
    if (chain_) return *chain_;
    HloInstructionEditProto& zero = Emit("chain.zero", "constant", ChainShape(), NewId());
    *zero.mutable_literal()->mutable_shape() = ChainShape();
    zero.mutable_literal()->add_s32s(0);
    const int64_t constant = zero.id();
    if (IsCollective(instruction.opcode())) return constant;
    HloInstructionEditProto& copy = Emit("chain.begin", "copy", ChainShape(), NewId());
    copy.add_operand_ids(constant);
    return copy.id();
  }

  absl::Status Rewrite(const HloInstructionEditProto& instruction) {
    if (instruction.opcode() == "partition-id" || instruction.opcode() == "replica-id") {
      HloInstructionEditProto call = instruction;
      const bool replica = instruction.opcode() == "replica-id";
      MakeCall(kPositionTarget, absl::StrCat("{replica = ", replica ? "true" : "false", "}"), call);
      *instructions_.Add() = std::move(call);
    } else if (IsCollective(instruction.opcode())) {
      return RewriteCollective(instruction);
    } else if (module_.IsLink(instruction)) {
      return RewriteCaller(instruction);
    } else {
      *instructions_.Add() = instruction;
    }
    return absl::OkStatus();
  }

  static void MakeCall(std::string_view target, std::string attributes,
                       HloInstructionEditProto& call) {
    call.set_opcode("custom-call");
    call.set_custom_call_target(std::string(target));
    call.set_custom_call_api_version(xla::API_VERSION_TYPED_FFI);
    call.set_backend_config(std::move(attributes));
  }

  int64_t Convert(std::string name, const ShapeProto& to, int64_t value, int64_t id,
                  const HloInstructionEditProto& of) {
    HloInstructionEditProto& convert = Emit(std::move(name), "convert", to, id);
    convert.add_operand_ids(value);
    *convert.mutable_metadata() = of.metadata();
    return id;
  }

  // Collectives move bytes, so integers of less are bytes on their way. What is reduced stays right: the result keeps
  // the lowest bits.
  absl::Status RewriteCollective(const HloInstructionEditProto& instruction) {
    HloInstructionEditProto wide = instruction;
    *wide.mutable_shape() = Widened(instruction.shape());
    std::vector<ShapeProto> operands;
    bool is_wide = false;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) {
      const int64_t operand = instruction.operand_ids(i);
      operands.push_back(Widened(ShapeOf(operand)));
      if (!NeedsWidening(ShapeOf(operand))) continue;
      is_wide = true;
      wide.set_operand_ids(i, Convert(absl::StrCat(instruction.name(), ".wide.", i),
                                      operands.back(), operand, NewId(), instruction));
    }
    if (!is_wide) return RewriteToCall(instruction, operands);
    table_.SetWidens();
    wide.set_id(NewId());
    GANGWAY_RETURN_IF_ERROR(RewriteToCall(wide, operands));
    Narrow(instruction, wide);
    return absl::OkStatus();
  }

  // `wide` takes the place of `original`, whose integers have less than a byte.
  void Narrow(const HloInstructionEditProto& original, const HloInstructionEditProto& wide) {
    const std::string name = absl::StrCat(original.name(), ".narrow");
    const ShapeProto& shape = original.shape();
    if (shape.element_type() != xla::TYPE_TUPLE) {
      Convert(name, shape, wide.id(), original.id(), original);
      return;
    }
    std::vector<int64_t> parts;
    for (int i = 0; i < shape.tuple_shapes_size(); ++i) {
      const ShapeProto& part = shape.tuple_shapes(i);
      const std::string part_name = absl::StrCat(name, ".", i);
      parts.push_back(Part(absl::StrCat(part_name, ".wide"), wide.shape().tuple_shapes(i),
                           wide.id(), i, NewId()));
      if (NeedsWidening(part)) {
        parts.back() = Convert(part_name, part, parts.back(), NewId(), original);
      }
    }
    HloInstructionEditProto& whole = Emit(name, "tuple", shape, original.id());
    whole.mutable_operand_ids()->Add(parts.begin(), parts.end());
  }

  absl::Status RewriteToCall(const HloInstructionEditProto& instruction,
                             const std::vector<ShapeProto>& shapes) {
    std::vector<const ShapeProto*> operands;
    for (const ShapeProto& shape : shapes) operands.push_back(&shape);
    const HloComputationEditProto* const reducer =
        instruction.called_computation_ids().empty()
            ? nullptr
            : module_.Find(instruction.called_computation_ids(0));
    absl::StatusOr<int> number = table_.Add(instruction, operands, reducer);
    if (!number.ok()) {
      return absl::Status(number.status().code(),
                          absl::StrCat(Named(instruction), ": ", number.status().message()));
    }
    const int64_t chain = ChainBefore(instruction);
    HloInstructionEditProto& call = Emit(absl::StrCat(instruction.name(), ".call"), "",
                                         WithChain(instruction.shape()), NewId());
    *call.mutable_metadata() = instruction.metadata();
    *call.mutable_operand_ids() = instruction.operand_ids();
    *call.mutable_control_predecessor_ids() = instruction.control_predecessor_ids();
    call.add_operand_ids(chain);
    call.set_custom_call_has_side_effect(true);
    MakeCall(kCollectiveTarget, absl::StrCat("{number = ", *number, " : i64}"), call);
    Split(instruction, call.id());
    return absl::OkStatus();
  }

  absl::Status RewriteCaller(const HloInstructionEditProto& instruction) {
    const int64_t chain = ChainBefore(instruction);
    HloInstructionEditProto caller = instruction;
    caller.set_name(absl::StrCat(instruction.name(), ".chained"));
    *caller.mutable_shape() = WithChain(instruction.shape());
    if (instruction.opcode() == "call") {
      caller.add_operand_ids(chain);
    } else {  // a conditional's first operand chooses the branch
      for (int i = instruction.opcode() == "while" ? 0 : 1; i < caller.operand_ids_size(); ++i) {
        const int64_t value = caller.operand_ids(i);
        caller.set_operand_ids(i, Pair(absl::StrCat(instruction.name(), ".with_chain.", i),
                                       ShapeOf(value), value, chain));
      }
    }
    caller.set_id(NewId());
    const int64_t id = caller.id();
    *instructions_.Add() = std::move(caller);
    Split(instruction, id);
    return absl::OkStatus();
  }

  absl::Status End() {
    root_ = computation_.root_id();
    if (how_ != Chained::kState && how_ != Chained::kCall) return absl::OkStatus();
    if (!chain_) return Malformed(absl::StrCat(computation_.name(), " has no parameter"));
    root_ = Pair(absl::StrCat(computation_.name(), ".result"), ShapeOf(root_), root_, *chain_);
    return absl::OkStatus();
  }

  absl::Status Replace() {
    xla::ProgramShapeProto& shape = *computation_.mutable_program_shape();
    if (how_ == Chained::kState || how_ == Chained::kCondition) {
      if (parameters_ != 1 || shape.parameters_size() != 1)
        return Malformed(absl::StrCat(computation_.name(), " has no parameter"));
      *shape.mutable_parameters(0) = WithChain(shape.parameters(0));
    }
    if (how_ == Chained::kCall) {
      *shape.add_parameters() = ChainShape();
      shape.add_parameter_names("chain");
    }
    if (how_ == Chained::kState || how_ == Chained::kCall)
      *shape.mutable_result() = WithChain(shape.result());
    computation_.set_root_id(root_);
    computation_.mutable_instructions()->Swap(&instructions_);
    auto scheduled = sequences().find(computation_.id());
    if (scheduled == sequences().end()) return absl::OkStatus();
    scheduled->second.clear_instruction_ids();
    for (const HloInstructionEditProto& instruction : computation_.instructions())
      scheduled->second.add_instruction_ids(instruction.id());
    return absl::OkStatus();
  }

  Module& module_;
  Table& table_;
  HloComputationEditProto& computation_;
  const Chained how_;
  absl::flat_hash_map<int64_t, const HloInstructionEditProto*> by_id_;  // of the original
  google::protobuf::RepeatedPtrField<HloInstructionEditProto> instructions_;
  std::optional<int64_t> chain_;  // its latest value; null: it has not begun
  int64_t parameters_ = 0;
  int64_t root_ = 0;
};

absl::StatusOr<Positions> PositionsOf(const xla::HloModuleConfigProto& config) {
  const Positions positions{std::max<int64_t>(1, config.replica_count()),
                            std::max<int64_t>(1, config.num_partitions())};
  if (positions.replicas > kPositionsMax || positions.partitions > kPositionsMax ||
      positions.count() > kPositionsMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("it is for more than ", kPositionsMax, " positions"));
  return positions;
}

absl::Status CheckMembersOf(const HloInstructionEditProto& instruction,
                            const Positions& positions) {
  if (instruction.opcode() == "collective-permute") {
    xla::Collective pairs;
    return AddPairs(instruction, positions, pairs);
  }
  GANGWAY_ASSIGN_OR_RETURN(const xla::CollectiveGroups groups, GroupsOf(instruction, positions));
  // A position without a group gets zeros of a broadcast.
  if (instruction.opcode() == "collective-broadcast") return absl::OkStatus();
  return CheckComplete(groups, positions);
}

// XLA CPU gives each element of such an array a byte of its own in a collective, and so writes past the array's end.
absl::Status CheckPacked(const ShapeProto& shape) {
  for (const ShapeProto& part : shape.tuple_shapes()) GANGWAY_RETURN_IF_ERROR(CheckPacked(part));
  if (!xla::IsNarrow(shape.element_type())) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("its elements are ", std::string(xla::ElementName(shape.element_type())),
                   ", which the device runtime's own collectives cannot carry: convert them to a "
                   "type of a byte before it"));
}

absl::Status CheckKept(const HloInstructionEditProto& instruction, const Positions& positions) {
  GANGWAY_RETURN_IF_ERROR(CheckPacked(instruction.shape()));
  if (!IsCollective(instruction.opcode())) return absl::OkStatus();
  const absl::Status members = CheckMembersOf(instruction, positions);
  return absl::IsInvalidArgument(members) ? members : absl::OkStatus();
}

absl::Status Parse(std::string_view bytes, xla::HloWithConfigEditProto& program) {
  if (bytes.size() <= INT32_MAX &&
      program.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::OkStatus();
  return Malformed("not a serialized HLO module with its configuration");
}

// Whether positions may run its collectives in different numbers: in a branch, or in a loop whose length is not known.
bool MayDiverge(const Module& module, const HloComputationEditProto& computation) {
  return std::ranges::any_of(computation.instructions(), [&](const auto& instruction) {
    const bool has_known_length = absl::StrContains(instruction.backend_config(), kKnownTripCount);
    return module.IsLink(instruction) && (instruction.opcode() == "conditional" ||
                                          (instruction.opcode() == "while" && !has_known_length));
  });
}

}  // namespace

absl::StatusOr<Lowered> LowerCollectives(std::string_view hlo_with_config) {
  xla::HloWithConfigEditProto program;
  GANGWAY_RETURN_IF_ERROR(Parse(hlo_with_config, program));
  GANGWAY_ASSIGN_OR_RETURN(const Positions positions, PositionsOf(program.config()));
  xla::HloModuleEditProto& proto = *program.mutable_module();
  proto.clear_device_assignment();
  GANGWAY_ASSIGN_OR_RETURN(Module module, Module::Open(proto));
  Table table(positions, proto.stack_frame_index());
  for (HloComputationEditProto& computation : *proto.mutable_computations()) {
    if (MayDiverge(module, computation)) table.SetMayDiverge();
    if (module.IsRewritten(computation))
      GANGWAY_RETURN_IF_ERROR(Rewriter(module, table, computation).Run());
  }
  module.RemoveUncalled();
  return Lowered{.program = proto.SerializeAsString(),
                 .table = table.Take(),
                 .shape = module.Find(proto.entry_computation_id())->program_shape(),
                 .widens = table.widens()};
}

absl::Status CheckNoOwnCalls(std::string_view hlo_with_config) {
  xla::HloWithConfigEditProto program;
  GANGWAY_RETURN_IF_ERROR(Parse(hlo_with_config, program));
  for (const HloComputationEditProto& computation : program.module().computations())
    for (const HloInstructionEditProto& instruction : computation.instructions())
      GANGWAY_RETURN_IF_ERROR(CheckNoOwnCall(instruction));
  return absl::OkStatus();
}

absl::Status CheckKeptCollectives(std::string_view hlo_with_config) {
  if (!MayCommunicate(hlo_with_config)) return absl::OkStatus();
  xla::HloWithConfigEditProto program;
  GANGWAY_RETURN_IF_ERROR(Parse(hlo_with_config, program));
  GANGWAY_ASSIGN_OR_RETURN(const Positions positions, PositionsOf(program.config()));
  for (const HloComputationEditProto& computation : program.module().computations()) {
    for (const HloInstructionEditProto& instruction : computation.instructions()) {
      if (!IsCollective(instruction.opcode()) && !IsOtherCommunication(instruction.opcode()))
        continue;
      const absl::Status status = CheckKept(instruction, positions);
      if (!status.ok())
        return absl::Status(status.code(),
                            absl::StrCat(Named(instruction), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace gangway::collective
