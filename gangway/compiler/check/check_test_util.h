// For tests of the program check: builds modules of one instruction by hand.
#ifndef GANGWAY_COMPILER_CHECK_CHECK_TEST_UTIL_H_
#define GANGWAY_COMPILER_CHECK_CHECK_TEST_UTIL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/compiler/check/check.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

namespace hlo = xla::hlo;

using Dims = std::vector<int64_t>;
using Edit = std::function<void(hlo::Instruction&)>;

inline hlo::Shape Array(int type, const Dims& dims) {
  hlo::Shape shape;
  shape.set_element_type(type);
  for (int64_t dim : dims) shape.add_dimensions(dim);
  for (auto i = static_cast<int64_t>(dims.size()); i-- > 0;)
    shape.mutable_layout()->add_minor_to_major(i);
  return shape;
}
inline hlo::Shape F32(const Dims& dims) { return Array(xla::TYPE_F32, dims); }
inline hlo::Shape S32(const Dims& dims) { return Array(xla::TYPE_S32, dims); }
inline hlo::Shape U32(const Dims& dims) { return Array(xla::TYPE_U32, dims); }
inline hlo::Shape Pred(const Dims& dims) { return Array(xla::TYPE_PRED, dims); }
inline hlo::Shape C64(const Dims& dims) { return Array(xla::TYPE_C64, dims); }
inline hlo::Shape Token() {
  hlo::Shape shape;
  shape.set_element_type(xla::TYPE_TOKEN);
  return shape;
}
inline hlo::Shape TupleOf(const std::vector<hlo::Shape>& parts) {
  hlo::Shape shape;
  shape.set_element_type(xla::TYPE_TUPLE);
  for (const hlo::Shape& part : parts) *shape.add_tuple_shapes() = part;
  return shape;
}

template <typename Field>
void Fill(Field* field, const Dims& values) {
  field->Clear();
  for (int64_t value : values) field->Add(static_cast<typename Field::value_type>(value));
}

// Adds an instruction, whose id is new in its computation, and which becomes the root.
inline hlo::Instruction& AddTo(hlo::Computation& computation, std::string_view opcode,
                               const hlo::Shape& shape, const Dims& operands = {}) {
  const int64_t id = computation.instructions_size() + 1;
  hlo::Instruction& added = *computation.add_instructions();
  added.set_name(absl::StrCat(computation.name(), ".", id));
  added.set_opcode(std::string(opcode));
  *added.mutable_shape() = shape;
  added.set_id(id);
  Fill(added.mutable_operand_ids(), operands);
  computation.set_root_id(id);
  *computation.mutable_program_shape()->mutable_result() = shape;
  return added;
}

inline void AddParameter(hlo::Computation& computation, const hlo::Shape& shape) {
  const int number = computation.program_shape().parameters_size();
  AddTo(computation, "parameter", shape).set_parameter_number(number);
  *computation.mutable_program_shape()->add_parameters() = shape;
}

inline hlo::Computation Named(const std::string& name, const std::vector<hlo::Shape>& parameters) {
  hlo::Computation computation;
  computation.set_name(name);
  for (const hlo::Shape& parameter : parameters) AddParameter(computation, parameter);
  return computation;
}

// A computation whose root is one instruction of its parameters.
inline hlo::Computation OneCall(std::string_view opcode, const hlo::Shape& result,
                                const std::vector<hlo::Shape>& parameters, const Edit& edit = {}) {
  hlo::Computation computation = Named("called", parameters);
  Dims operands;
  for (size_t i = 0; i < parameters.size(); ++i) operands.push_back(static_cast<int64_t>(i) + 1);
  hlo::Instruction& root = AddTo(computation, opcode, result, operands);
  if (edit) edit(root);
  return computation;
}

inline hlo::Computation Adder(int type = xla::TYPE_F32) {
  return OneCall("add", Array(type, {}), {Array(type, {}), Array(type, {})});
}

inline hlo::Computation Comparing(const std::string& direction, const std::string& type,
                                  int element = xla::TYPE_F32) {
  return OneCall("compare", Pred({}), {Array(element, {}), Array(element, {})},
                 [&](hlo::Instruction& compare) {
                   compare.set_comparison_direction(direction);
                   compare.set_comparison_type(type);
                 });
}

// The module takes its entry's signature from the entry.
inline void Close(hlo::Module& module, hlo::Computation entry) {
  entry.set_name("entry");
  entry.set_id(1000);
  *module.mutable_host_program_shape() = entry.program_shape();
  module.set_entry_computation_id(entry.id());
  module.set_entry_computation_name(entry.name());
  *module.add_computations() = std::move(entry);
}

// An entry whose root is `opcode` of its parameters, and which calls `calls`.
inline hlo::Module OneOp(std::string_view opcode, const hlo::Shape& result,
                         const std::vector<hlo::Shape>& operands, const Edit& edit = {},
                         const std::vector<hlo::Computation>& calls = {}) {
  hlo::Module module;
  module.set_name("module");
  hlo::Computation entry = OneCall(opcode, result, operands);
  hlo::Instruction& root = *entry.mutable_instructions(entry.instructions_size() - 1);
  for (const hlo::Computation& call : calls) {
    hlo::Computation& added = *module.add_computations();
    added = call;
    added.set_id(module.computations_size());
    added.set_name(absl::StrCat("called.", added.id()));
    root.add_called_computation_ids(added.id());
  }
  if (edit) edit(root);
  Close(module, std::move(entry));
  return module;
}

inline CustomCallRule TakeAnyCall(const hlo::Module&) {
  return [](const CustomCallSite&) { return absl::OkStatus(); };
}

inline absl::StatusOr<Checked> Check(const hlo::Module& module, Positions positions = {}) {
  return CheckProgram(module.SerializeAsString(), TakeAnyCall, positions);
}

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_CHECK_TEST_UTIL_H_
