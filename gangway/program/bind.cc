// Implementation of Bind in passes.h.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/program/copier.h"
#include "gangway/program/names.h"
#include "gangway/program/passes.h"

namespace gangway::program {
namespace {

class BindPass {
 public:
  BindPass(const Program& program, std::span<const ArgumentType> arguments,
           const FunctionTypes& functions)
      : from_(program),
        to_(program.name()),
        copier_(from_, to_),
        arguments_(arguments),
        functions_(functions),
        bound_(program.functions().size()) {}

  absl::StatusOr<Program> Run() {
    for (index_ = 0; index_ < from_.nodes().size(); ++index_)
      GANGWAY_RETURN_IF_ERROR(BindNode(from_.nodes()[index_]));
    return std::move(to_);
  }

 private:
  struct Function {
    const FunctionType* type = nullptr;  // null before its first call
    std::optional<DevicesId> devices;    // of `to_`
  };

  absl::Status BindNode(const Node& node);
  absl::Status BindArgument(const Node& node, Node copy);
  absl::Status BindCall(const Node& node, Node copy);
  absl::Status BindTransfer(const Node& node, Node copy);
  absl::Status BindView(const Node& node, Node copy);
  absl::Status CheckCall(const Node& node, const FunctionType& type) const;
  absl::StatusOr<std::optional<ShapeId>> ShapeOfView(const Node& copy) const;
  absl::Status SetDevices(Node& copy, std::optional<DevicesId> devices) const;
  std::optional<DevicesId> ListOf(const Devices& devices);
  absl::StatusOr<Function> FunctionOf(FunctionId function);

  const ArrayShape* ShapeOf(ValueId value) const {
    const std::optional<ShapeId> shape = to_.values()[value].shape;
    return shape ? &to_.shapes()[*shape] : nullptr;
  }
  const Devices* DevicesOf(ValueId value) const {
    const std::optional<DevicesId> list = to_.values()[value].devices;
    return list ? &to_.device_lists()[*list] : nullptr;
  }

  // By the function's name for people, where it is known.
  std::string Where() const {
    const Node& node = from_.nodes()[index_];
    const bool has_name = node.kind == Kind::kCall && bound_[node.function].type != nullptr;
    return from_.Describe(index_, has_name ? bound_[node.function].type->name : "");
  }
  template <typename... Parts>
  absl::Status Refuse(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(Where(), " ", parts...));
  }

  const Program& from_;
  Program to_;
  Copier copier_;
  std::span<const ArgumentType> arguments_;
  const FunctionTypes& functions_;
  std::vector<Function> bound_;  // by function
  size_t index_ = 0;             // of the node
};

std::string On(const Devices* devices) {
  return devices == nullptr || devices->empty() ? ""
                                                : absl::StrCat(" on devices ", ShortText(*devices));
}

absl::StatusOr<BindPass::Function> BindPass::FunctionOf(FunctionId function) {
  Function& bound = bound_[function];
  if (bound.type == nullptr) {
    absl::StatusOr<const FunctionType*> type = functions_(from_.functions()[function]);
    GANGWAY_RETURN_IF_ERROR(type, Where());
    bound = {.type = *type, .devices = ListOf((*type)->devices)};
  }
  return bound;
}

std::optional<DevicesId> BindPass::ListOf(const Devices& devices) {
  if (devices.empty()) return std::nullopt;
  return to_.ListOf(devices);
}

absl::Status BindPass::SetDevices(Node& copy, std::optional<DevicesId> devices) const {
  if (copy.devices && devices && copy.devices != devices) {
    return Refuse("is on devices ", ShortText(to_.device_lists()[*devices]), ", the program says ",
                  ShortText(to_.device_lists()[*copy.devices]));
  }
  if (devices) copy.devices = devices;
  return absl::OkStatus();
}

absl::Status BindPass::BindArgument(const Node& node, Node copy) {
  const ValueId value = node.first_output;
  if (value >= arguments_.size()) {
    copier_.Add(std::move(copy), node);
    copier_.CopyShapes(node);
    return absl::OkStatus();
  }
  const ArgumentType& type = arguments_[value];
  GANGWAY_RETURN_IF_ERROR(SetDevices(copy, ListOf(type.devices)));
  const std::optional<ShapeId> said = from_.values()[value].shape;
  if (said && type.shape && from_.shapes()[*said] != *type.shape) {
    return Refuse("is ", ToText(*type.shape), ", the program says ", ToText(from_.shapes()[*said]));
  }
  copier_.Add(std::move(copy), node);
  copier_.CopyShapes(node);
  if (type.shape) to_.SetShape(value, *type.shape);
  return absl::OkStatus();
}

// Whether its inputs and outputs are those that its function has.
absl::Status BindPass::CheckCall(const Node& node, const FunctionType& type) const {
  if (node.inputs.size() != type.parameters.size()) {
    return Refuse("has ", node.inputs.size(), " inputs, its function takes ",
                  type.parameters.size());
  }
  if (node.output_count != type.results.size()) {
    return Refuse("has ", node.output_count, " outputs, its function gives ", type.results.size());
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    const ArrayShape* shape = ShapeOf(input);
    if (shape == nullptr || Fits(*shape, type.parameters[i])) continue;
    return Refuse("takes ", ToText(type.parameters[i]), On(&type.devices), " as input ", i,
                  ", and %", input, " is ", ToText(*shape), On(DevicesOf(input)));
  }
  return absl::OkStatus();
}

absl::Status BindPass::BindCall(const Node& node, Node copy) {
  GANGWAY_ASSIGN_OR_RETURN(const Function function, FunctionOf(node.function));
  const FunctionType& type = *function.type;
  GANGWAY_RETURN_IF_ERROR(CheckCall(node, type));
  GANGWAY_RETURN_IF_ERROR(SetDevices(copy, function.devices));
  copy.donated.clear();
  std::ranges::set_difference(type.donated, copy.kept, std::back_inserter(copy.donated));
  copy.kept.clear();
  copier_.Add(std::move(copy), node);
  for (uint32_t i = 0; i < node.output_count; ++i)
    to_.SetShape(node.first_output + i, type.results[i]);
  return absl::OkStatus();
}

absl::Status BindPass::BindTransfer(const Node& node, Node copy) {
  const ValueId input = node.inputs[0];
  const Devices* from = DevicesOf(input);
  const Devices& to = to_.device_lists()[*copy.devices];
  if (from != nullptr && from->size() != to.size()) {
    return Refuse("moves %", input, ", which is on devices ", ShortText(*from), ", to ", to.size(),
                  " devices, ", ShortText(to));
  }
  copier_.Add(std::move(copy), node);
  const ArrayShape* shape = ShapeOf(input);
  if (shape == nullptr) {
    copier_.CopyShapes(node);
    return absl::OkStatus();
  }
  ArrayShape moved = *shape;
  moved.memory_kind = node.memory_kind;
  to_.SetShape(node.first_output, moved);
  return absl::OkStatus();
}

// Of all its shards, as far as is known.
absl::StatusOr<std::optional<ShapeId>> BindPass::ShapeOfView(const Node& copy) const {
  std::optional<ShapeId> shape;
  ValueId like = 0;
  for (ValueId input : copy.inputs) {
    const std::optional<ShapeId> own = to_.values()[input].shape;
    if (own && shape && own != shape) {
      return Refuse("is of shards of different shapes: %", like, " is ",
                    ToText(to_.shapes()[*shape]), ", and %", input, " is ",
                    ToText(to_.shapes()[*own]));
    }
    if (!own || shape) continue;
    shape = own;
    like = input;
  }
  return shape;
}

absl::Status BindPass::BindView(const Node& node, Node copy) {
  GANGWAY_ASSIGN_OR_RETURN(const std::optional<ShapeId> shape, ShapeOfView(copy));
  Devices devices;
  bool all_known = true;
  for (size_t i = 0; i < node.shards.size(); ++i) {
    const Devices* from = DevicesOf(node.inputs[i]);
    all_known &= from != nullptr;
    if (from == nullptr) continue;
    if (node.shards[i] >= from->size()) {
      return Refuse("takes shard ", node.shards[i], " of %", node.inputs[i], ", which has ",
                    from->size(), On(from));
    }
    devices.push_back((*from)[node.shards[i]]);
  }
  // Of several replicas, the one that is taken is known at the launch.
  if (const Devices* from = DevicesOf(node.inputs[0]); node.shards.empty() && from != nullptr) {
    if (from->size() == 1) devices = *from;
  }
  if (all_known) GANGWAY_RETURN_IF_ERROR(SetDevices(copy, ListOf(devices)));
  copier_.Add(std::move(copy), node);
  if (shape) {
    to_.SetShape(node.first_output, to_.shapes()[*shape]);
  } else {
    copier_.CopyShapes(node);
  }
  return absl::OkStatus();
}

absl::Status BindPass::BindNode(const Node& node) {
  Node copy = copier_.Translated(node);
  copy.origin.node = static_cast<uint32_t>(index_);
  switch (node.kind) {
    case Kind::kArgument:
      return BindArgument(node, std::move(copy));
    case Kind::kCall:
      return BindCall(node, std::move(copy));
    case Kind::kTransfer:
      return BindTransfer(node, std::move(copy));
    case Kind::kView:
      return BindView(node, std::move(copy));
    case Kind::kResult:
    case Kind::kFree:
      copier_.Add(std::move(copy), node);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> Bind(const Program& program, std::span<const ArgumentType> arguments,
                             const FunctionTypes& functions) {
  return BindPass(program, arguments, functions).Run();
}

}  // namespace gangway::program
