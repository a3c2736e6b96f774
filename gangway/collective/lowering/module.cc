// Implementation of module.h.
#include "gangway/collective/lowering/module.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/collective/lowering/describe.h"
#include "gangway/collective/lowering/lowering.h"

namespace gangway::collective {
namespace {

using xla::HloComputationEditProto;
using xla::HloInstructionEditProto;

constexpr int kPassesMax = 64;  // real programs need two

bool PassesControl(const HloInstructionEditProto& instruction) {
  return instruction.opcode() == "while" || instruction.opcode() == "conditional" ||
         instruction.opcode() == "call";
}

// The number of operands that its calls need.
bool HasItsOperands(const HloInstructionEditProto& instruction) {
  const int operands = instruction.operand_ids_size(),
            calls = instruction.called_computation_ids_size();
  if (instruction.opcode() == "while") return operands == 1 && calls == 2;
  if (instruction.opcode() == "conditional") return calls > 0 && operands == calls + 1;
  return calls == 1;
}

Chained HowCalled(const HloInstructionEditProto& caller, size_t position) {
  if (caller.opcode() == "call") return Chained::kCall;
  return caller.opcode() == "while" && position == 1 ? Chained::kCondition : Chained::kState;
}

absl::Status CheckKnown(const HloInstructionEditProto& instruction) {
  if (IsOtherCommunication(instruction.opcode())) {
    return absl::UnimplementedError(
        absl::StrCat(Named(instruction), " is a form of communication that is not known"));
  }
  return CheckNoOwnCall(instruction);
}

}  // namespace

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed compiled program: ", why));
}

absl::Status CheckNoOwnCall(const HloInstructionEditProto& instruction) {
  const std::string_view target = instruction.custom_call_target();
  if (target != kCollectiveTarget && target != kPositionTarget) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Named(instruction), " calls ", std::string(target),
                                                 ", which no program may call itself"));
}

std::string Named(const HloInstructionEditProto& instruction) {
  return absl::StrCat(instruction.name(), " (", instruction.opcode(), ")");
}

absl::StatusOr<Module> Module::Open(xla::HloModuleEditProto& proto) {
  if (!proto.has_schedule()) return Malformed("it is not scheduled");
  Module module(proto);
  GANGWAY_RETURN_IF_ERROR(module.Index());
  GANGWAY_RETURN_IF_ERROR(module.FindChained());
  return module;
}

absl::Status Module::Index() {
  for (int i = 0; i < proto_->computations_size(); ++i) {
    const HloComputationEditProto& computation = proto_->computations(i);
    GANGWAY_RETURN_IF_ERROR(CheckIds(computation));
    if (!index_.emplace(computation.id(), i).second)
      return Malformed(absl::StrCat("two computations have the id ", computation.id()));
  }
  if (!index_.contains(proto_->entry_computation_id())) return Malformed("it has no entry");
  return absl::OkStatus();
}

// Callees come first in every module, so nothing calls itself.
absl::Status Module::CheckIds(const HloComputationEditProto& computation) {
  absl::flat_hash_set<int64_t> ids;
  for (const HloInstructionEditProto& instruction : computation.instructions()) {
    if (instruction.id() < 0 || instruction.id() >= INT64_MAX / 2 ||
        !ids.insert(instruction.id()).second)
      return Malformed(absl::StrCat("the id of ", Named(instruction), " is not its own"));
    last_[computation.id()] = std::max(last_[computation.id()], instruction.id());
    last_id_ = std::max(last_id_, instruction.id());
  }
  auto known = [&](const auto& list) {
    return std::ranges::all_of(list, [&](int64_t id) { return ids.contains(id); });
  };
  for (const HloInstructionEditProto& instruction : computation.instructions()) {
    if (!known(instruction.operand_ids()) || !known(instruction.control_predecessor_ids()))
      return Malformed(absl::StrCat(Named(instruction), " refers to what does not exist"));
    for (int64_t callee : instruction.called_computation_ids())
      if (!index_.contains(callee))
        return Malformed(absl::StrCat(Named(instruction), " calls a computation that comes later"));
    if (PassesControl(instruction) && !HasItsOperands(instruction))
      return Malformed(absl::StrCat(Named(instruction), " has a wrong number of operands"));
    GANGWAY_RETURN_IF_ERROR(CheckKnown(instruction));
  }
  if (!ids.contains(computation.root_id()))
    return Malformed(absl::StrCat("computation ", computation.name(), " has no root"));
  return absl::OkStatus();
}

absl::Status Module::FindChained() {
  // What runs instruction by instruction: handlers are called only there.
  absl::flat_hash_set<int64_t> control = {proto_->entry_computation_id()};
  for (int i = proto_->computations_size(); i-- > 0;) {
    const HloComputationEditProto& computation = proto_->computations(i);
    const bool is_control = control.contains(computation.id());
    for (const HloInstructionEditProto& instruction : computation.instructions()) {
      const bool calls_handler = IsCollective(instruction.opcode()) ||
                                 instruction.opcode() == "partition-id" ||
                                 instruction.opcode() == "replica-id";
      if (!is_control && calls_handler)
        return absl::UnimplementedError(absl::StrCat(
            Named(instruction), " is inside of ", computation.name(), ", a part of an operation"));
      if (calls_handler) rewritten_.insert(computation.id());
      for (int64_t callee : instruction.called_computation_ids())
        if (is_control && PassesControl(instruction)) control.insert(callee);
    }
  }
  size_t marked = 1;
  for (int pass = 0; marked > 0; ++pass) {
    if (pass == kPassesMax)
      return absl::UnimplementedError("its calls that communicate are entangled too deeply");
    marked = 0;
    for (const HloComputationEditProto& computation : proto_->computations()) {
      if (!control.contains(computation.id())) continue;
      for (const HloInstructionEditProto& instruction : computation.instructions()) {
        if (!IsLink(instruction)) continue;
        if (holders_.insert(computation.id()).second) ++marked;
        for (int i = 0;
             !IsCollective(instruction.opcode()) && i < instruction.called_computation_ids_size();
             ++i)
          GANGWAY_RETURN_IF_ERROR(
              Mark(instruction.called_computation_ids(i), HowCalled(instruction, i), marked));
        if (computation.id() == proto_->entry_computation_id())
          GANGWAY_RETURN_IF_ERROR(Mark(computation.id(), Chained::kEntry, marked));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Module::Mark(int64_t computation, Chained how, size_t& marked) {
  auto [it, is_new] = chained_.emplace(computation, how);
  if (is_new) ++marked;
  if (it->second == how) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("computation ", Find(computation)->name(),
                                               ", which communicates, is called in two ways"));
}

const HloComputationEditProto* Module::Find(int64_t computation) const {
  auto it = index_.find(computation);
  return it == index_.end() ? nullptr : &proto_->computations(it->second);
}

Chained Module::chained(int64_t computation) const {
  auto it = chained_.find(computation);
  return it == chained_.end() ? Chained::kNot : it->second;
}

bool Module::IsLink(const HloInstructionEditProto& instruction) const {
  if (IsCollective(instruction.opcode())) return true;
  return PassesControl(instruction) &&
         std::ranges::any_of(instruction.called_computation_ids(), [this](int64_t callee) {
           return holders_.contains(callee) || chained(callee) != Chained::kNot;
         });
}

// Newer plugins write the computation's id into the upper half of its instructions' ids.
int64_t Module::NewId(int64_t computation) {
  int64_t& last = last_[computation];
  return last >> 32 == computation ? ++last : ++last_id_;
}

void Module::RemoveUncalled() {
  absl::flat_hash_set<int64_t> called = {proto_->entry_computation_id()};
  for (int i = proto_->computations_size(); i-- > 0;) {
    const HloComputationEditProto& computation = proto_->computations(i);
    if (!called.contains(computation.id())) continue;
    for (const HloInstructionEditProto& instruction : computation.instructions())
      called.insert(instruction.called_computation_ids().begin(),
                    instruction.called_computation_ids().end());
  }
  auto* const computations = proto_->mutable_computations();
  for (const HloComputationEditProto& computation : *computations)
    if (!called.contains(computation.id()))
      proto_->mutable_schedule()->mutable_sequences()->erase(computation.id());
  computations->erase(std::remove_if(computations->begin(), computations->end(),
                                     [&](const HloComputationEditProto& computation) {
                                       return !called.contains(computation.id());
                                     }),
                      computations->end());
  index_.clear();
  for (int i = 0; i < proto_->computations_size(); ++i) index_[proto_->computations(i).id()] = i;
}

}  // namespace gangway::collective
