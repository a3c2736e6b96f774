// For tests of the lowering: builds HLO modules by hand, and says what is inconsistent in a module.
#ifndef GANGWAY_COLLECTIVE_LOWERING_MODULE_TEST_UTIL_H_
#define GANGWAY_COLLECTIVE_LOWERING_MODULE_TEST_UTIL_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::collective {

inline xla::ShapeProto F32(std::initializer_list<int64_t> dims) {
  xla::ShapeProto shape;
  shape.set_element_type(xla::TYPE_F32);
  for (int64_t dim : dims) shape.add_dimensions(dim);
  for (int64_t i = shape.dimensions_size(); i-- > 0;) shape.mutable_layout()->add_minor_to_major(i);
  return shape;
}

inline xla::ShapeProto TupleOf(std::initializer_list<xla::ShapeProto> parts) {
  xla::ShapeProto shape;
  shape.set_element_type(xla::TYPE_TUPLE);
  for (const xla::ShapeProto& part : parts) *shape.add_tuple_shapes() = part;
  return shape;
}

// To an instruction, or to its list of devices.
template <typename Groups>
void AddGroup(Groups& groups, const std::vector<int64_t>& ids) {
  groups.add_replica_groups()->mutable_replica_ids()->Add(ids.begin(), ids.end());
}

inline void FillIota(xla::IotaReplicaGroupListProto& list, int64_t groups, int64_t members,
                     const std::vector<int64_t>& dims, const std::vector<int32_t>& order) {
  list.set_num_replica_groups(groups);
  list.set_num_devices_per_group(members);
  list.mutable_iota_reshape_dims()->Add(dims.begin(), dims.end());
  list.mutable_iota_transpose_perm()->Add(order.begin(), order.end());
}

// An axis of a mesh; with a size, a part of it.
struct MeshAxis {
  int64_t index = 0;
  int64_t pre_size = 0, size = 0;
};

inline void FillMesh(xla::HloInstructionEditProto& instruction, const std::vector<int64_t>& sizes,
                     const std::vector<MeshAxis>& axes, const std::vector<int64_t>& ids = {}) {
  auto& list = *instruction.mutable_mesh_axes_replica_group_list();
  for (int64_t size : sizes) list.mutable_mesh()->add_axes()->set_size(size);
  list.mutable_mesh()->mutable_device_ids()->Add(ids.begin(), ids.end());
  for (const MeshAxis& axis : axes) {
    auto& ref = *list.add_axes();
    ref.set_mesh_axis_index(axis.index);
    if (axis.size == 0) continue;
    ref.mutable_sub_axis_info()->set_pre_size(axis.pre_size);
    ref.mutable_sub_axis_info()->set_size(axis.size);
  }
}

// Callees are built before their callers. Ids are as a plugin writes them; the last instruction is the root.
class ModuleBuilder {
 public:
  ModuleBuilder(int64_t replicas, int64_t partitions) {
    program_.mutable_config()->set_replica_count(replicas);
    program_.mutable_config()->set_num_partitions(partitions);
  }
  // Begins a computation, which is the entry unless another one follows.
  int64_t Begin(const std::string& name) {
    computation_ = program_.mutable_module()->add_computations();
    computation_->set_name(name);
    computation_->set_id(int64_t{4} * program_.module().computations_size());
    program_.mutable_module()->set_entry_computation_id(computation_->id());
    parameters_ = 0;
    return computation_->id();
  }
  xla::HloInstructionEditProto& Add(const std::string& opcode, const xla::ShapeProto& shape,
                                    std::vector<int64_t> operands = {},
                                    std::vector<int64_t> calls = {}) {
    auto& instruction = *computation_->add_instructions();
    instruction.set_id(computation_->id() << 32 | computation_->instructions_size());
    instruction.set_name(absl::StrCat(opcode, ".", instruction.id() & 0xffffffff));
    instruction.set_opcode(opcode);
    *instruction.mutable_shape() = shape;
    instruction.mutable_operand_ids()->Add(operands.begin(), operands.end());
    instruction.mutable_called_computation_ids()->Add(calls.begin(), calls.end());
    computation_->set_root_id(instruction.id());
    *computation_->mutable_program_shape()->mutable_result() = shape;
    auto& schedule = *program_.mutable_module()->mutable_schedule()->mutable_sequences();
    schedule[computation_->id()].add_instruction_ids(instruction.id());
    return instruction;
  }
  int64_t Parameter(const xla::ShapeProto& shape) {
    auto& parameter = Add("parameter", shape);
    parameter.set_parameter_number(parameters_++);
    *computation_->mutable_program_shape()->add_parameters() = shape;
    return parameter.id();
  }
  int64_t Part(const xla::ShapeProto& shape, int64_t of, int index) {
    auto& part = Add("get-tuple-element", shape, {of});
    part.set_tuple_index(index);
    return part.id();
  }
  int64_t Reducer(const std::string& opcode) {
    const int64_t id = Begin(absl::StrCat("reduce.", opcode));
    const int64_t a = Parameter(F32({})), b = Parameter(F32({}));
    Add(opcode, F32({}), {a, b});
    return id;
  }
  xla::HloWithConfigEditProto& program() { return program_; }
  std::string Bytes() const { return program_.SerializeAsString(); }

 private:
  xla::HloWithConfigEditProto program_;
  xla::HloComputationEditProto* computation_ = nullptr;
  int parameters_ = 0;
};

// What a compiler would reject in a lowered module: "" if nothing.
class ModuleChecker {
 public:
  explicit ModuleChecker(const xla::HloModuleEditProto& module) : module_(module) {}

  std::string Defect() {
    for (const auto& computation : module_.computations()) {
      std::string defect = DefectIn(computation);
      if (!defect.empty()) return absl::StrCat(computation.name(), ": ", defect);
      done_[computation.id()] = &computation;
    }
    return done_.contains(module_.entry_computation_id()) ? "" : "no entry";
  }

 private:
  using Shape = xla::ShapeProto;

  static bool Same(const Shape& a, const Shape& b) {
    if (a.element_type() != b.element_type() || a.tuple_shapes_size() != b.tuple_shapes_size() ||
        a.dimensions_size() != b.dimensions_size())
      return false;
    for (int i = 0; i < a.dimensions_size(); ++i)
      if (a.dimensions(i) != b.dimensions(i)) return false;
    for (int i = 0; i < a.tuple_shapes_size(); ++i)
      if (!Same(a.tuple_shapes(i), b.tuple_shapes(i))) return false;
    return true;
  }

  std::string DefectIn(const xla::HloComputationEditProto& computation) {
    std::map<int64_t, const xla::HloInstructionEditProto*> before;
    std::set<std::string> names;
    std::vector<int64_t> order;
    for (const auto& instruction : computation.instructions()) {
      for (int64_t operand : instruction.operand_ids())
        if (!before.contains(operand))
          return absl::StrCat(instruction.name(), " uses ", operand, " before it is there");
      if (!before.emplace(instruction.id(), &instruction).second)
        return absl::StrCat("two instructions have the id ", instruction.id());
      std::string defect = DefectIn(instruction, before);
      if (!defect.empty()) return absl::StrCat(instruction.name(), ": ", defect);
      order.push_back(instruction.id());
    }
    if (!before.contains(computation.root_id())) return "no root";
    if (!Same(before[computation.root_id()]->shape(), computation.program_shape().result()))
      return "the root is not the declared result";
    auto schedule = module_.schedule().sequences().find(computation.id());
    if (schedule == module_.schedule().sequences().end()) return "";
    return std::vector<int64_t>(schedule->second.instruction_ids().begin(),
                                schedule->second.instruction_ids().end()) == order
               ? ""
               : "its schedule is another order";
  }

  std::string DefectIn(const xla::HloInstructionEditProto& instruction,
                       const std::map<int64_t, const xla::HloInstructionEditProto*>& before) {
    auto shape = [&](int operand) -> const Shape& {
      return before.at(instruction.operand_ids(operand))->shape();
    };
    if (instruction.opcode() == "get-tuple-element") {
      const Shape& whole = shape(0);
      if (instruction.tuple_index() < 0 || instruction.tuple_index() >= whole.tuple_shapes_size() ||
          !Same(whole.tuple_shapes(static_cast<int>(instruction.tuple_index())),
                instruction.shape()))
        return "not a part of its operand";
    }
    for (int i = 0; i < instruction.called_computation_ids_size(); ++i) {
      auto callee = done_.find(instruction.called_computation_ids(i));
      if (callee == done_.end()) return "its callee does not come before it";
      const auto& callee_shape = callee->second->program_shape();
      const bool is_while = instruction.opcode() == "while";
      if (!is_while && instruction.opcode() != "conditional" && instruction.opcode() != "call")
        continue;
      const bool is_condition = is_while && i == 1;
      if (!is_condition && !Same(callee_shape.result(), instruction.shape()))
        return "its callee returns another shape";
      const bool is_call = instruction.opcode() == "call";
      for (int j = 0; j < callee_shape.parameters_size(); ++j) {
        const int operand = is_call ? j : is_while ? 0 : i + 1;
        if (operand >= instruction.operand_ids_size() ||
            !Same(shape(operand), callee_shape.parameters(j)))
          return absl::StrCat("operand ", operand, " is not what its callee takes");
      }
    }
    return "";
  }

  const xla::HloModuleEditProto& module_;
  std::map<int64_t, const xla::HloComputationEditProto*> done_;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_LOWERING_MODULE_TEST_UTIL_H_
