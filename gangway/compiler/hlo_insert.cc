// Implementation of hlo_insert.h.
#include "gangway/compiler/hlo_insert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::compiler {
namespace {

using xla::HloComputationEditProto;
using xla::HloInstructionEditProto;
using xla::OpShardingProto;

constexpr int64_t kIdMax = INT64_MAX / 2;
constexpr int64_t kComputationIdMax =
    INT32_MAX / 2;  // it is the upper half of its instructions' ids

void AddManual(const xla::ShapeProto& shape, OpShardingProto& tuple) {
  for (const xla::ShapeProto& part : shape.tuple_shapes()) {
    if (part.element_type() == xla::TYPE_TUPLE)
      AddManual(part, tuple);
    else
      tuple.add_tuple_shardings()->set_type(OpShardingProto::TYPE_MANUAL);
  }
}

bool PassesControl(const HloInstructionEditProto& instruction) {
  return instruction.opcode() == "while" || instruction.opcode() == "conditional" ||
         instruction.opcode() == "call";
}

// The computations that run instruction by instruction; the others are parts of an operation.
absl::flat_hash_set<int64_t> ControlOf(const xla::HloModuleEditProto& module) {
  absl::flat_hash_set<int64_t> control = {module.entry_computation_id()};
  for (int i = module.computations_size(); i-- > 0;) {  // callees come first
    if (!control.contains(module.computations(i).id())) continue;
    for (const HloInstructionEditProto& instruction : module.computations(i).instructions())
      if (PassesControl(instruction))
        control.insert(instruction.called_computation_ids().begin(),
                       instruction.called_computation_ids().end());
  }
  return control;
}

}  // namespace

absl::Status MalformedProgram(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed program: ", why));
}

OpShardingProto ManualSharding(const xla::ShapeProto& shape) {
  OpShardingProto sharding;
  if (shape.element_type() == xla::TYPE_TUPLE) {
    sharding.set_type(OpShardingProto::TYPE_TUPLE);
    AddManual(shape, sharding);
  }
  if (sharding.tuple_shardings().empty()) sharding.set_type(OpShardingProto::TYPE_MANUAL);
  return sharding;
}

absl::StatusOr<HloIds> HloIds::Of(const xla::HloModuleEditProto& module) {
  HloIds ids;
  for (const HloComputationEditProto& computation : module.computations()) {
    if (computation.id() < 0 || computation.id() > kComputationIdMax)
      return MalformedProgram(absl::StrCat("a computation has the id ", computation.id()));
    ids.last_computation_ = std::max(ids.last_computation_, computation.id());
    for (const HloInstructionEditProto& instruction : computation.instructions()) {
      if (instruction.id() < 0 || instruction.id() > kIdMax || instruction.channel_id() > kIdMax)
        return MalformedProgram(absl::StrCat(instruction.name(), " has the id ", instruction.id(),
                                             " and the channel ", instruction.channel_id()));
      int64_t& last = ids.last_[computation.id()];
      last = std::max(last, instruction.id());
      ids.last_id_ = std::max(ids.last_id_, instruction.id());
      ids.wide_ = ids.wide_ || instruction.id() >> 32 != 0;
      ids.last_channel_ = std::max(ids.last_channel_, instruction.channel_id());
    }
  }
  return ids;
}

int64_t HloIds::New(int64_t computation) {
  if (!wide_) return ++last_id_;
  int64_t& last = last_[computation];
  last = std::max(last, computation << 32);
  return ++last;
}

absl::StatusOr<int64_t> HloIds::Insert(const xla::HloModuleEditProto& body, const std::string& name,
                                       xla::HloModuleEditProto& module) {
  GANGWAY_RETURN_IF_ERROR(Of(body).status());
  const absl::flat_hash_set<int64_t> control = ControlOf(body);
  absl::flat_hash_map<int64_t, int64_t> computations;  // new ids by old ones
  google::protobuf::RepeatedPtrField<HloComputationEditProto> inserted;
  int64_t channels = 0;
  for (const HloComputationEditProto& old : body.computations()) {
    if (computations.size() > kComputationIdMax || last_computation_ >= kComputationIdMax)
      return MalformedProgram("it has too many computations");
    const int64_t id = ++last_computation_;
    if (!computations.emplace(old.id(), id).second)
      return MalformedProgram("two computations have one id");
    HloComputationEditProto& computation = *inserted.Add();
    computation = old;
    computation.set_id(id);
    computation.set_name(absl::StrCat(name, ".", old.name()));
    absl::flat_hash_map<int64_t, int64_t> instructions;
    const auto renumber = [&](auto* list, const auto& known) {
      for (int64_t& each : *list) {
        const auto found = known.find(each);
        if (found == known.end()) return false;
        each = found->second;
      }
      return true;
    };
    for (HloInstructionEditProto& instruction : *computation.mutable_instructions()) {
      const int64_t old_id = instruction.id();
      instruction.set_id(New(id));
      if (!renumber(instruction.mutable_operand_ids(), instructions) ||
          !renumber(instruction.mutable_control_predecessor_ids(), instructions) ||
          !renumber(instruction.mutable_called_computation_ids(), computations))
        return MalformedProgram(
            absl::StrCat(instruction.name(), " refers to what does not come before it"));
      if (!instructions.emplace(old_id, instruction.id()).second)
        return MalformedProgram("two instructions have one id");
      instruction.set_name(absl::StrCat(name, ".", instruction.name()));
      instruction.mutable_metadata()
          ->clear_stack_frame_id();  // an index into the body's own frames
      channels = std::max(channels, instruction.channel_id());
      if (instruction.channel_id() > 0)
        instruction.set_channel_id(instruction.channel_id() + last_channel_);
      if (control.contains(old.id()))
        *instruction.mutable_sharding() = ManualSharding(instruction.shape());
    }
    const auto root = instructions.find(old.root_id());
    if (root == instructions.end()) return MalformedProgram("a computation has no root");
    computation.set_root_id(root->second);
  }
  last_channel_ += channels;  // each is at most kIdMax
  if (last_channel_ > kIdMax) return MalformedProgram("its channels are too many");
  const auto entry = computations.find(body.entry_computation_id());
  if (entry == computations.end()) return MalformedProgram("it has no entry");
  for (HloComputationEditProto& computation : *module.mutable_computations())
    *inserted.Add() = std::move(computation);
  module.mutable_computations()->Swap(&inserted);
  return entry->second;
}

}  // namespace gangway::compiler
