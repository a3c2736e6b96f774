// For tests of check_calls.h: modules of one call, as JAX makes them or by hand.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_TEST_UTIL_H_
#define GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler::calls {

inline xla::hlo::Shape Array(int32_t type, const std::vector<int64_t>& dims) {
  xla::hlo::Shape shape;
  shape.set_element_type(type);
  shape.mutable_dimensions()->Add(dims.begin(), dims.end());
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i)
    shape.mutable_layout()->add_minor_to_major(i);
  shape.mutable_layout();
  return shape;
}

inline xla::hlo::Shape F32(const std::vector<int64_t>& dims) { return Array(xla::TYPE_F32, dims); }

inline xla::hlo::Shape Tuple(const std::vector<xla::hlo::Shape>& parts) {
  xla::hlo::Shape shape;
  shape.set_element_type(xla::TYPE_TUPLE);
  for (const auto& part : parts) *shape.add_tuple_shapes() = part;
  return shape;
}

// The call is the last instruction of the first computation, its operands are the ones before it, in order.
inline xla::hlo::Module ModuleOf(const std::string& target,
                                 const std::vector<xla::hlo::Shape>& operands,
                                 const xla::hlo::Shape& result) {
  xla::hlo::Module module;
  auto& main = *module.add_computations();
  main.set_id(1);
  int64_t id = 0;
  for (const auto& operand : operands) {
    auto& parameter = *main.add_instructions();
    parameter.set_opcode("parameter");
    parameter.set_id(++id);
    *parameter.mutable_shape() = operand;
  }
  auto& call = *main.add_instructions();
  call.set_opcode("custom-call");
  call.set_custom_call_target(target);
  call.set_custom_call_api_version(1);
  call.set_id(id + 1);
  for (int64_t i = 1; i <= id; ++i) call.add_operand_ids(i);
  *call.mutable_shape() = result;
  return module;
}

inline xla::hlo::Instruction& CallOf(xla::hlo::Module& module) {
  auto& instructions = *module.mutable_computations(0)->mutable_instructions();
  return instructions[instructions.size() - 1];
}

// A typed call that asks for its operands as they are.
inline xla::hlo::Module TypedModuleOf(const std::string& target,
                                      const std::vector<xla::hlo::Shape>& operands,
                                      const xla::hlo::Shape& result, const std::string& config) {
  xla::hlo::Module module = ModuleOf(target, operands, result);
  auto& call = CallOf(module);
  call.set_custom_call_api_version(4);
  call.set_backend_config(config);
  call.set_constrain_layout(true);
  for (const auto& operand : operands) *call.add_operand_shapes_with_layout() = operand;
  return module;
}

// What the rule says to the call.
inline absl::Status CheckCallOf(const xla::hlo::Module& module, const std::string& platform = "cpu",
                                int64_t partitions = 8, bool simulates_work = false) {
  const CustomCallRule rule = MakeCustomCallRule(module, {platform, partitions, simulates_work});
  ComputationsById computations;
  for (const auto& computation : module.computations())
    computations[computation.id()] = &computation;
  const auto& instructions = module.computations(0).instructions();
  std::vector<const xla::hlo::Shape*> operands;
  for (int i = 0; i + 1 < instructions.size(); ++i) operands.push_back(&instructions[i].shape());
  return rule({instructions[instructions.size() - 1], operands, computations});
}

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_TEST_UTIL_H_
