// Implementation of InsertTransfers in passes.h.
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/program/copier.h"
#include "gangway/program/names.h"
#include "gangway/program/passes.h"

namespace gangway::program {
namespace {

class TransferPass {
 public:
  explicit TransferPass(const Program& program)
      : from_(program), to_(program.name()), copier_(from_, to_) {}

  absl::StatusOr<Program> Run() {
    for (size_t i = 0; i < from_.nodes().size(); ++i) {
      const Node& node = from_.nodes()[i];
      Node copy = copier_.Translated(node);
      if (node.kind == Kind::kCall) GANGWAY_RETURN_IF_ERROR(MoveInputs(i, copy));
      copier_.Add(std::move(copy), node);
      copier_.CopyShapes(node);
    }
    return std::move(to_);
  }

 private:
  absl::Status MoveInputs(size_t index, Node& copy);
  ValueId Transfer(const Node& call, ValueId input);
  absl::Status CheckNumber(size_t index, size_t input) const;

  const Program& from_;
  Program to_;
  Copier copier_;
  // What is already elsewhere, for calls that do not donate it: a value and devices of `to_`.
  absl::flat_hash_map<std::pair<ValueId, DevicesId>, ValueId> moved_;
};

absl::Status TransferPass::CheckNumber(size_t index, size_t input) const {
  const Node& node = from_.nodes()[index];
  const Devices& from = from_.device_lists()[*from_.values()[node.inputs[input]].devices];
  const Devices& to = from_.device_lists()[*node.devices];
  if (from.size() == to.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      from_.Describe(index), " runs on devices ", ShortText(to), " and takes %", node.inputs[input],
      " as input ", input, ", which has another number of shards, on devices ", ShortText(from)));
}

// The inputs of a call that are elsewhere. `copy` is of `to_`, and so is what it takes.
absl::Status TransferPass::MoveInputs(size_t index, Node& copy) {
  if (!copy.devices) return absl::OkStatus();
  size_t donated = 0;  // of copy.donated, those before the input
  for (uint32_t i = 0; i < copy.inputs.size(); ++i) {
    const bool donates = donated < copy.donated.size() && copy.donated[donated] == i;
    donated += donates ? 1 : 0;
    ValueId& input = copy.inputs[i];
    const std::optional<DevicesId> devices = to_.values()[input].devices;
    if (!devices || devices == copy.devices) continue;
    GANGWAY_RETURN_IF_ERROR(CheckNumber(index, i));
    if (donates) {
      input = Transfer(copy, input);
      continue;
    }
    auto [it, is_new] = moved_.try_emplace({input, *copy.devices});
    if (is_new) it->second = Transfer(copy, input);
    input = it->second;
  }
  return absl::OkStatus();
}

ValueId TransferPass::Transfer(const Node& call, ValueId input) {
  const std::optional<ShapeId> shape = to_.values()[input].shape;
  const ValueId moved = to_.Add({.kind = Kind::kTransfer,
                                 .inputs = {input},
                                 .devices = call.devices,
                                 .source = call.source,
                                 .origin = {call.origin.node, /*is_inserted=*/true},
                                 .output_count = 1});
  if (shape) {
    ArrayShape usual = to_.shapes()[*shape];
    usual.memory_kind.clear();
    to_.SetShape(moved, usual);
  }
  return moved;
}

}  // namespace

absl::StatusOr<Program> InsertTransfers(const Program& program) {
  return TransferPass(program).Run();
}

}  // namespace gangway::program
