// Implementation of check.h: the walk over computations and instructions. Computations come before their callers, and
// operands before their users, as XLA requires; so one pass sees all, and nothing can be its own operand or callee.
#include "gangway/compiler/check/check.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/applied.h"
#include "gangway/compiler/check/attributes.h"
#include "gangway/compiler/check/fields.h"
#include "gangway/compiler/check/manual_computations.h"
#include "gangway/compiler/check/module_rules.h"
#include "gangway/compiler/check/opcodes.h"
#include "gangway/compiler/check/own_fields.h"
#include "gangway/compiler/check/sharding_texts.h"
#include "gangway/compiler/check/site.h"

namespace gangway::compiler {
namespace {

namespace hlo = xla::hlo;

constexpr int kCallDepthMax = 256;
// XLA's passes take time with the cube of this: 0.5 s for 64 small loops in one another, 2.4 s for 128.
constexpr int kLoopDepthMax = 64;
// XLA copies a computation for each call of it, so that calls of calls multiply.
constexpr int64_t kExpandedMax = 10'000'000;
// Each call is compared with the whole signature of what it calls, so that a long one, called often, takes long.
constexpr int64_t kComparedMax = 100'000'000;

// XLA keeps a computation's instructions in a list as long as the largest lower half of an id, so that large ids take
// memory. Clients number them from 1, at least in every computation or in all of them together.
constexpr int64_t kIdsMax = int64_t{1} << 24;
constexpr int64_t kIdsPerInstruction = 4;

// XLA looks an id up by its lower half, so two that agree there are one.
uint32_t KeyOf(int64_t id) { return static_cast<uint32_t>(id & 0xffffffff); }

// Of the enumerations that no rule reads. XLA keeps numbers that it does not know, and later assumes one that it does.
absl::Status CheckEnumerations(const hlo::Instruction& self) {
  constexpr int kPrecisionMax = 2, kAlgorithmMax = 13;
  const auto& precision = self.precision_config();
  if (precision.operand_precision_size() > std::max(self.operand_ids_size(), 2) ||
      precision.algorithm() < 0 || precision.algorithm() > kAlgorithmMax ||
      std::ranges::any_of(precision.operand_precision(),
                          [](int value) { return value < 0 || value > kPrecisionMax; }))
    return Bad("its precision is not known");
  if (self.padding_type() < 0 || self.padding_type() > 2 || self.custom_call_schedule() < 0 ||
      self.custom_call_schedule() > 2 || self.custom_call_api_version() < 0 ||
      self.custom_call_api_version() > 4)
    return Bad("its kind of padding, schedule or call is not known");
  return absl::OkStatus();
}

// Fields that any instruction may have.
absl::Status CheckCommon(const Program& program, const hlo::Instruction& self) {
  GANGWAY_RETURN_IF_ERROR(CheckFields(self));
  GANGWAY_RETURN_IF_ERROR(CheckShape(self.shape()));
  GANGWAY_RETURN_IF_ERROR(
      CheckMetadata(self.metadata(), program.module.stack_frame_index().stack_frames_size()));
  if (self.has_sharding())
    GANGWAY_RETURN_IF_ERROR(CheckSharding(self.sharding(), self.shape(), program.positions));
  if (self.has_frontend_attributes()) {
    GANGWAY_RETURN_IF_ERROR(CheckFrontendAttributes(self.frontend_attributes()));
    GANGWAY_RETURN_IF_ERROR(CheckShardingTexts(self, program.meshes, program.positions));
  }
  GANGWAY_RETURN_IF_ERROR(CheckOwnFields(self));
  if (!self.async_execution_thread().empty() && self.async_execution_thread() != "main")
    return NotTaken("it names a thread to run on: leave it to XLA");
  const auto& accuracy = self.result_accuracy();
  const auto is_tolerance = [](double value) { return value >= 0 && value <= 1e300; };
  if (accuracy.mode() < 0 || accuracy.mode() > 1 || !is_tolerance(accuracy.tolerance().atol()) ||
      !is_tolerance(accuracy.tolerance().rtol()) || accuracy.tolerance().ulps() < 0)
    return Bad("its accuracy is not known");
  return CheckEnumerations(self);
}

// The walk over one computation.
class Walk {
 public:
  Walk(Program& program, const hlo::Computation& computation)
      : program_(program), computation_(computation) {
    made_.computation = &computation;
    made_.expanded = computation.instructions_size();
    program_.instructions += computation.instructions_size();
  }

  absl::StatusOr<Callee> Run() {
    GANGWAY_RETURN_IF_ERROR(CheckHead());
    indices_.reserve(static_cast<size_t>(computation_.instructions_size()));
    for (const hlo::Instruction& each : computation_.instructions()) {
      GANGWAY_RETURN_IF_ERROR(CheckOne(each), "\"", Shown(each.name()), "\" (",
                              Shown(each.opcode()), ") in \"", Shown(computation_.name()), "\"");
    }
    program_.ids += largest_;
    if (program_.ids > kIdsMax + kIdsPerInstruction * program_.instructions)
      return Bad("the ids of its instructions are too large: number them from 1");
    GANGWAY_RETURN_IF_ERROR(Close(), "computation \"", Shown(computation_.name()), "\"");
    return std::move(made_);
  }

 private:
  absl::Status CheckHead() {
    GANGWAY_RETURN_IF_ERROR(CheckFields(computation_));
    GANGWAY_RETURN_IF_ERROR(CheckName(computation_.name()));
    GANGWAY_RETURN_IF_ERROR(CheckExpanded());
    if (computation_.is_fusion_computation())
      return NotTaken("it is a fusion's: send the program as it is before XLA optimizes it");
    if (!computation_.execution_thread().empty() && computation_.execution_thread() != "main")
      return NotTaken("it names a thread to run on: leave it to XLA");
    return absl::OkStatus();
  }

  absl::Status CheckOne(const hlo::Instruction& self) {
    GANGWAY_RETURN_IF_ERROR(CheckName(self.name()));
    GANGWAY_ASSIGN_OR_RETURN(const Opcode* opcode, FindOpcode(self.opcode()));
    GANGWAY_RETURN_IF_ERROR(CheckCommon(program_, self));
    GANGWAY_RETURN_IF_ERROR(Resolve(self, *opcode));
    GANGWAY_RETURN_IF_ERROR(opcode->rule(Site{program_, self, operands_, callees_}));
    if (self.id() < 0 ||
        !indices_.try_emplace(KeyOf(self.id()), static_cast<int>(indices_.size())).second)
      return Bad("its id ", self.id(), " is negative or another one's");
    largest_ = std::max(largest_, int64_t{KeyOf(self.id())});
    const bool is_annotation = IsAnnotation(self);
    made_.is_annotated = made_.is_annotated || is_annotation;
    made_.is_for_elements = made_.is_for_elements && (opcode->is_for_elements || is_annotation);
    if (self.opcode() == "parameter") return AddParameter(self);
    return absl::OkStatus();
  }

  const hlo::Instruction* Find(int64_t id) const {
    const auto found = indices_.find(KeyOf(id));
    if (found == indices_.end()) return nullptr;
    const hlo::Instruction& instruction = computation_.instructions(found->second);
    return instruction.id() == id ? &instruction : nullptr;
  }

  // Finds operands and callees, and compares their number with the opcode's.
  absl::Status Resolve(const hlo::Instruction& self, const Opcode& opcode) {
    operands_.clear();
    callees_.clear();
    for (const int64_t id : self.operand_ids()) {
      const hlo::Instruction* operand = Find(id);
      if (operand == nullptr) return Bad("operand ", id, " does not come before it");
      operands_.push_back(&operand->shape());
    }
    for (const int64_t id : self.control_predecessor_ids())
      if (Find(id) == nullptr) return Bad("predecessor ", id, " does not come before it");
    if (opcode.operands != kAny && static_cast<int>(operands_.size()) != opcode.operands)
      return Bad("it has ", operands_.size(), " operands instead of ", opcode.operands);
    const bool takes_none = opcode.name == "call" || opcode.name == "custom-call" ||
                            opcode.name == "tuple" || opcode.name == "after-all";
    if (opcode.operands == kAny && operands_.empty() && !takes_none)
      return Bad("it has no operands");
    for (const int64_t id : self.called_computation_ids()) {
      GANGWAY_RETURN_IF_ERROR(Call(id, self, opcode));
    }
    if (opcode.calls != kAny && static_cast<int>(callees_.size()) != opcode.calls)
      return Bad("it calls ", callees_.size(), " computations instead of ", opcode.calls);
    return absl::OkStatus();
  }

  absl::Status Call(int64_t id, const hlo::Instruction& self, const Opcode& opcode) {
    const auto found = program_.callees.find(id);
    if (found == program_.callees.end())
      return Bad("computation ", id, ", which it calls, does not come before its own");
    Callee& callee = found->second;
    callee.is_called = true;
    callees_.push_back(&callee);
    made_.is_for_elements = made_.is_for_elements && callee.is_for_elements;
    made_.is_annotated = made_.is_annotated || callee.is_annotated;
    if (callee.is_annotated && AppliesToElements(self))
      program_.checked.has_applied_annotations = true;
    made_.depth = std::max(made_.depth, callee.depth + 1);
    const bool is_nested = opcode.name == "while" || opcode.name == "conditional";
    made_.loop_depth = std::max(made_.loop_depth, callee.loop_depth + (is_nested ? 1 : 0));
    made_.expanded += callee.expanded;
    program_.compared += callee.parts;
    if (program_.compared > kComparedMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("the calls of the program pass more than ", kComparedMax,
                       " arrays in all: inline some, or pass less"));
    if (made_.depth > kCallDepthMax)
      return Bad("calls are nested deeper than ", kCallDepthMax, ": inline some");
    if (made_.loop_depth > kLoopDepthMax)
      return Bad("loops and branches are nested deeper than ", kLoopDepthMax, ": merge some");
    return CheckExpanded();
  }

  absl::Status CheckExpanded() const {
    if (made_.expanded > kExpandedMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("with every call written out, the program has more than ", kExpandedMax,
                       " instructions: use a loop"));
    return absl::OkStatus();
  }

  absl::Status AddParameter(const hlo::Instruction& self) {
    const int64_t number = self.parameter_number();
    if (number < 0 || number >= computation_.program_shape().parameters_size())
      return Bad("it is parameter ", number, " of ",
                 computation_.program_shape().parameters_size());
    made_.parameters.resize(static_cast<size_t>(computation_.program_shape().parameters_size()));
    const Shape*& place = made_.parameters[static_cast<size_t>(number)];
    if (place != nullptr) return Bad("it is parameter ", number, ", as another one is");
    place = &self.shape();
    return absl::OkStatus();
  }

  // The signature is that of the parameters and the root.
  absl::Status Close() {
    const auto& signature = computation_.program_shape();
    const hlo::Instruction* root = Find(computation_.root_id());
    if (root == nullptr) return Bad("its root ", computation_.root_id(), " is not in it");
    made_.result = &root->shape();
    made_.parts = Parts(*made_.result);
    if (static_cast<int>(made_.parameters.size()) != signature.parameters_size())
      return Bad("it lacks parameters: it has ", signature.parameters_size());
    for (int i = 0; i < signature.parameters_size(); ++i) {
      const Shape* own = made_.parameters[static_cast<size_t>(i)];
      if (own == nullptr) return Bad("it lacks parameter ", i);
      made_.parts += Parts(*own);
      GANGWAY_RETURN_IF_ERROR(CheckShape(signature.parameters(i)));
      if (!Same(signature.parameters(i), *own))
        return Bad("parameter ", i, " is ", Text(*own), ", and in its signature ",
                   Text(signature.parameters(i)));
    }
    GANGWAY_RETURN_IF_ERROR(CheckShape(signature.result()));
    if (!Same(signature.result(), *made_.result))
      return Bad("its root is ", Text(*made_.result), ", and in its signature ",
                 Text(signature.result()));
    if (made_.is_for_elements && signature.parameters_size() == 2)
      made_.operation = OperationOf(computation_);
    return absl::OkStatus();
  }

  Program& program_;
  const hlo::Computation& computation_;
  Callee made_;
  int64_t largest_ = 0;  // lower half of an id
  absl::flat_hash_map<uint32_t, int> indices_;
  std::vector<const Shape*> operands_;
  std::vector<const Callee*> callees_;
};

absl::StatusOr<Checked> CheckModule(const hlo::Module& module,
                                    const CustomCallRule& check_custom_call, Positions positions) {
  GANGWAY_RETURN_IF_ERROR(CheckModuleHead(module));
  GANGWAY_ASSIGN_OR_RETURN(calls::TextMeshes meshes, MeshesOf(module));
  Program program{.module = module,
                  .check_custom_call = check_custom_call,
                  .positions = positions,
                  .meshes = std::move(meshes),
                  .callees = {},
                  .by_id = {},
                  .checked = {}};
  // Callees are pointed to while one computation is walked, so they must not move then.
  program.callees.reserve(static_cast<size_t>(module.computations_size()));
  for (const hlo::Computation& each : module.computations()) {
    GANGWAY_ASSIGN_OR_RETURN(Callee callee, Walk(program, each).Run());
    if (each.id() > kIdsMax) return Bad("computation id ", each.id(), " is too large");
    if (each.id() < 0 || !program.callees.try_emplace(each.id(), std::move(callee)).second)
      return Bad("computation id ", each.id(), " is negative or another one's");
    program.by_id.emplace(each.id(), &each);
  }
  const auto entry = program.callees.find(module.entry_computation_id());
  if (entry == program.callees.end())
    return Bad("the module's entry ", module.entry_computation_id(), " is not in it");
  if (entry->second.is_called) return Bad("the module's entry is called from inside");
  GANGWAY_RETURN_IF_ERROR(CheckModuleInterface(program, entry->second));
  GANGWAY_RETURN_IF_ERROR(CheckManualComputations(module));
  return program.checked;
}

template <typename Message>
bool ParseWhole(std::string_view bytes, Message& message) {
  return bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

absl::StatusOr<Checked> CheckProgram(std::string_view serialized_module,
                                     const CustomCallRules& rules, Positions positions) {
  google::protobuf::Arena arena;
  auto& module = *google::protobuf::Arena::CreateMessage<hlo::Module>(&arena);
  if (!ParseWhole(serialized_module, module))
    return absl::InvalidArgumentError("the program is no HLO module, or larger than 2 GiB");
  return CheckModule(module, rules(module), positions);
}

absl::StatusOr<std::string> WithChanges(std::string_view serialized_module,
                                        const Checked& checked) {
  google::protobuf::Arena arena;
  auto& module = *google::protobuf::Arena::CreateMessage<hlo::Module>(&arena);
  if (!ParseWhole(serialized_module, module))
    return absl::InvalidArgumentError("the program is no HLO module, or larger than 2 GiB");
  if (checked.has_applied_annotations) RemoveAppliedAnnotations(module);
  if (!checked.wants_stable_sorts) return module.SerializeAsString();
  for (hlo::Computation& computation : *module.mutable_computations())
    for (hlo::Instruction& each : *computation.mutable_instructions())
      if (each.opcode() == "sort") each.set_is_stable(true);
  return module.SerializeAsString();
}

}  // namespace gangway::compiler
