// Implementation of manual_computations.h.
#include "gangway/compiler/check/manual_computations.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/base/status.h"
#include "gangway/compiler/check/attributes.h"
#include "gangway/compiler/check/shapes.h"

namespace gangway::compiler {
namespace {

using xla::hlo::Computation;
using xla::hlo::Instruction;
using xla::hlo::Module;

constexpr std::string_view kBody = "xla.sdy.manual_computation_body";
constexpr std::string_view kToLocal = "xla.sdy.GlobalToLocalShape";
constexpr std::string_view kToGlobal = "xla.sdy.LocalToGlobalShape";

bool Calls(const Instruction& instruction, std::string_view target) {
  return instruction.opcode() == "custom-call" && instruction.custom_call_target() == target;
}

// One of the results of an instruction.
struct Part {
  const Instruction* of = nullptr;
  int64_t index = 0;
};

class Walk {
 public:
  Walk(const Computation& computation, const absl::flat_hash_set<int64_t>& bodies)
      : computation_(computation), bodies_(bodies) {
    for (const Instruction& each : computation.instructions()) by_id_[each.id()] = &each;
  }

  absl::Status Check() {
    for (const Instruction& each : computation_.instructions()) {
      GANGWAY_RETURN_IF_ERROR(CheckOne(each), "\"", Shown(each.name()), "\"");
    }
    for (const Instruction& each : computation_.instructions())
      if ((Calls(each, kToLocal) || (IsBody(each) && Results(each) > 0)) &&
          !taken_.contains(each.id()))
        return Bad("no call of its shard_map takes the results of \"", Shown(each.name()), "\"");
    return absl::OkStatus();
  }

 private:
  bool IsBody(const Instruction& each) const {
    return each.opcode() == "call" && each.called_computation_ids_size() == 1 &&
           bodies_.contains(each.called_computation_ids(0));
  }

  Part PartOf(int64_t operand) const {
    const Instruction* const found = by_id_.at(operand);
    if (found->opcode() == "get-tuple-element" && found->operand_ids_size() == 1)
      return {by_id_.at(found->operand_ids(0)), found->tuple_index()};
    return {found, 0};
  }

  static int64_t Results(const Instruction& each) {
    return IsTuple(each.shape()) ? each.shape().tuple_shapes_size() : 1;
  }

  // Its operands are all results of one instruction, in order.
  const Instruction* SourceOf(const Instruction& each) const {
    const Instruction* source = nullptr;
    for (int i = 0; i < each.operand_ids_size(); ++i) {
      const Part part = PartOf(each.operand_ids(i));
      if (part.index != i || (i > 0 && part.of != source)) return nullptr;
      source = part.of;
    }
    return source != nullptr && Results(*source) == each.operand_ids_size() ? source : nullptr;
  }

  absl::Status CheckOne(const Instruction& each) {
    if (IsBody(each)) {
      if (each.operand_ids_size() == 0) return absl::OkStatus();
      const Instruction* const source = SourceOf(each);
      if (source == nullptr || !Calls(*source, kToLocal) || !taken_.insert(source->id()).second)
        return Bad("the body of a shard_map takes something else than all shards of one call");
      return absl::OkStatus();
    }
    if (Calls(each, kToGlobal)) {
      const Instruction* const source = SourceOf(each);
      if (source == nullptr || !IsBody(*source) || !taken_.insert(source->id()).second)
        return Bad("it takes something else than all results of the body of one shard_map");
      return absl::OkStatus();
    }
    if (each.opcode() == "get-tuple-element") return absl::OkStatus();
    for (const int64_t operand : each.operand_ids()) {
      const Instruction* const source = PartOf(operand).of;
      if (Calls(*source, kToLocal) || IsBody(*source))
        return Bad("it takes shards outside of the body of a shard_map");
    }
    return absl::OkStatus();
  }

  const Computation& computation_;
  const absl::flat_hash_set<int64_t>& bodies_;
  absl::flat_hash_map<int64_t, const Instruction*> by_id_;
  absl::flat_hash_set<int64_t> taken_;  // instructions whose results have gone to their place
};

}  // namespace

absl::Status CheckManualComputations(const Module& module) {
  absl::flat_hash_set<int64_t> bodies;
  for (const Computation& each : module.computations())
    if (each.name().starts_with(kBody)) bodies.insert(each.id());
  for (const Computation& each : module.computations()) {
    bool has_any = !bodies.empty();
    for (const Instruction& instruction : each.instructions())
      has_any = has_any || Calls(instruction, kToLocal) || Calls(instruction, kToGlobal);
    if (has_any) GANGWAY_RETURN_IF_ERROR(Walk(each, bodies).Check());
  }
  return absl::OkStatus();
}

}  // namespace gangway::compiler
