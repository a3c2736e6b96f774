// Implementation of interpreter.h.
#include "gangway/program/interpreter.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::program {
namespace {

class Interpreter {
 public:
  Interpreter(const Program& program, std::vector<Array> arguments, const Evaluate& evaluate)
      : program_(program), arguments_(std::move(arguments)), evaluate_(evaluate) {}

  absl::StatusOr<std::vector<Array>> Run() {
    values_.reserve(program_.value_count());  // calls get pointers into it
    for (size_t i = 0; i < program_.nodes().size(); ++i)
      GANGWAY_RETURN_IF_ERROR(RunNode(program_.nodes()[i]), program_.Describe(i));
    return std::move(results_);
  }

 private:
  absl::Status RunNode(const Node& node);
  absl::Status RunArgument(const Node& node);
  absl::Status RunCall(const Node& node);
  absl::Status RunTransfer(const Node& node);
  absl::Status RunView(const Node& node);

  const Program& program_;
  std::vector<Array> arguments_;
  const Evaluate& evaluate_;
  std::vector<Array> values_, results_;
};

absl::Status Interpreter::RunArgument(const Node& node) {
  const size_t index = node.first_output;  // arguments come first
  if (index >= arguments_.size()) return absl::InvalidArgumentError("the argument is missing");
  Array& argument = arguments_[index];
  if (argument.shards.size() != argument.devices.size() ||
      (node.devices && argument.devices != program_.device_lists()[*node.devices]))
    return absl::InvalidArgumentError("the argument is on other devices");
  values_.push_back(std::move(argument));
  return absl::OkStatus();
}

absl::Status Interpreter::RunCall(const Node& node) {
  if (!node.devices) return absl::InvalidArgumentError("its devices are not known");
  const Call call{.function = program_.functions()[node.function],
                  .devices = program_.device_lists()[*node.devices],
                  .output_count = node.output_count};
  std::vector<const Array*> inputs;
  for (ValueId input : node.inputs) inputs.push_back(&values_[input]);
  GANGWAY_ASSIGN_OR_RETURN(auto outputs, evaluate_(call, inputs));
  if (outputs.size() != node.output_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("gave ", outputs.size(), " outputs, the call has ", node.output_count));
  }
  for (std::vector<std::string>& shards : outputs) {
    if (shards.size() != call.devices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("gave ", shards.size(), " shards on ", call.devices.size(), " devices"));
    }
    values_.push_back({call.devices, std::move(shards)});
  }
  return absl::OkStatus();
}

absl::Status Interpreter::RunTransfer(const Node& node) {
  const Devices& devices = program_.device_lists()[*node.devices];
  const Array& input = values_[node.inputs[0]];
  if (input.shards.size() != devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("moves ", input.shards.size(), " shards to ", devices.size(), " devices"));
  }
  values_.push_back({devices, input.shards});
  return absl::OkStatus();
}

absl::Status Interpreter::RunView(const Node& node) {
  Array view;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Array& input = values_[node.inputs[i]];
    const uint32_t shard = node.shards.empty() ? 0 : node.shards[i];
    if (shard >= input.shards.size()) {
      return absl::InvalidArgumentError(absl::StrCat("takes shard ", shard, " of %", node.inputs[i],
                                                     ", which has ", input.shards.size()));
    }
    view.devices.push_back(input.devices[shard]);
    view.shards.push_back(input.shards[shard]);
  }
  if (node.devices && view.devices != program_.device_lists()[*node.devices])
    return absl::InvalidArgumentError("its shards are on other devices");
  values_.push_back(std::move(view));
  return absl::OkStatus();
}

absl::Status Interpreter::RunNode(const Node& node) {
  switch (node.kind) {
    case Kind::kArgument:
      return RunArgument(node);
    case Kind::kCall:
      return RunCall(node);
    case Kind::kTransfer:
      return RunTransfer(node);
    case Kind::kView:
      return RunView(node);
    case Kind::kResult:
      results_.push_back(values_[node.inputs[0]]);
      break;
    case Kind::kFree:
      for (ValueId input : node.inputs) values_[input] = {};
      break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Array>> Interpret(const Program& program, std::vector<Array> arguments,
                                             const Evaluate& evaluate) {
  GANGWAY_RETURN_IF_ERROR(Verify(program));
  return Interpreter(program, std::move(arguments), evaluate).Run();
}

}  // namespace gangway::program
