// Implementation of applied.h.
#include "gangway/compiler/check/applied.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace gangway::compiler {
namespace {

namespace hlo = xla::hlo;

// What each annotation of the computation stands for: the value that it says something about.
using Values = absl::flat_hash_map<int64_t, int64_t>;

int64_t ValueOf(const Values& values, int64_t id) {
  const auto found = values.find(id);
  return found == values.end() ? id : found->second;
}

Values AnnotatedValues(const hlo::Computation& computation) {
  Values values;  // operands come before their users
  for (const hlo::Instruction& each : computation.instructions())
    if (IsAnnotation(each) && each.operand_ids_size() == 1)
      values.emplace(each.id(), ValueOf(values, each.operand_ids(0)));
  return values;
}

void RemoveAnnotations(hlo::Computation& computation) {
  const Values values = AnnotatedValues(computation);
  if (values.empty()) return;
  auto& instructions = *computation.mutable_instructions();
  instructions.erase(
      std::remove_if(instructions.begin(), instructions.end(),
                     [&](const hlo::Instruction& each) { return values.contains(each.id()); }),
      instructions.end());
  for (hlo::Instruction& each : instructions) {
    for (int64_t& id : *each.mutable_operand_ids()) id = ValueOf(values, id);
    for (int64_t& id : *each.mutable_control_predecessor_ids()) id = ValueOf(values, id);
  }
  computation.set_root_id(ValueOf(values, computation.root_id()));
}

}  // namespace

bool AppliesToElements(const hlo::Instruction& self) {
  const bool is_fused =
      self.opcode() == "custom-call" && self.custom_call_target() == "__cudnn$fusion";
  return self.called_computation_ids_size() > 0 && self.opcode() != "call" &&
         self.opcode() != "while" && self.opcode() != "conditional" && !is_fused;
}

bool IsAnnotation(const hlo::Instruction& self) {
  return self.opcode() == "custom-call" && self.custom_call_target() == "Sharding" &&
         self.called_computation_ids_size() == 0;
}

std::string_view OperationOf(const hlo::Computation& computation) {
  const Values values = AnnotatedValues(computation);
  const int64_t root_id = ValueOf(values, computation.root_id());
  const hlo::Instruction* root = nullptr;
  std::vector<int64_t> parameters, operands;
  for (const hlo::Instruction& each : computation.instructions()) {
    if (values.contains(each.id())) continue;
    if (each.opcode() == "parameter") {
      parameters.push_back(each.id());
    } else if (root == nullptr && each.id() == root_id) {
      root = &each;
    } else {
      return {};
    }
  }
  if (root == nullptr || parameters.size() != 2) return {};
  for (const int64_t id : root->operand_ids()) operands.push_back(ValueOf(values, id));
  return std::ranges::is_permutation(operands, parameters) ? std::string_view(root->opcode())
                                                           : std::string_view();
}

void RemoveAppliedAnnotations(hlo::Module& module) {
  absl::flat_hash_set<int64_t> applied;
  auto& computations = *module.mutable_computations();
  // Callees come before their callers.
  for (int i = computations.size() - 1; i >= 0; --i) {
    const bool is_applied = applied.contains(computations[i].id());
    for (const hlo::Instruction& each : computations[i].instructions())
      if (is_applied || AppliesToElements(each))
        applied.insert(each.called_computation_ids().begin(), each.called_computation_ids().end());
    if (is_applied) RemoveAnnotations(computations[i]);
  }
}

}  // namespace gangway::compiler
