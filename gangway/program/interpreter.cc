// Implementation of interpreter.h.
#include "gangway/program/interpreter.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::program {
namespace {

absl::Status EvaluateCall(const Node& node, const Evaluate& evaluate, std::vector<Array>& values) {
  std::vector<const Array*> inputs;
  for (ValueId input : node.inputs) inputs.push_back(&values[input]);
  GANGWAY_ASSIGN_OR_RETURN(auto outputs, evaluate(node, inputs));
  if (outputs.size() != node.output_count) {
    return absl::InvalidArgumentError(absl::StrCat(node.executable, " gave ", outputs.size(),
                                                   " outputs, the call has ", node.output_count));
  }
  for (std::vector<std::string>& shards : outputs) {
    if (shards.size() != node.devices.size()) {
      return absl::InvalidArgumentError(absl::StrCat(node.executable, " gave ", shards.size(),
                                                     " shards on ", node.devices.size(),
                                                     " devices"));
    }
    values.push_back({node.devices, std::move(shards)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Array>> Interpret(const Program& program, std::vector<Array> arguments,
                                             const Evaluate& evaluate) {
  GANGWAY_RETURN_IF_ERROR(Verify(program));
  std::vector<Array> values;
  values.reserve(program.value_count());  // EvaluateCall points into it
  std::vector<Array> results;
  size_t next_argument = 0;
  for (const Node& node : program.nodes()) {
    switch (node.kind) {
      case Kind::kArgument: {
        if (next_argument == arguments.size())
          return absl::InvalidArgumentError("an argument is missing");
        Array& argument = arguments[next_argument++];
        if (argument.devices != node.devices || argument.shards.size() != node.devices.size()) {
          return absl::InvalidArgumentError(
              absl::StrCat("argument ", next_argument - 1, " is on other devices"));
        }
        values.push_back(std::move(argument));
        break;
      }
      case Kind::kTransfer:
        values.push_back({node.devices, values[node.inputs[0]].shards});
        break;
      case Kind::kResult:
        results.push_back(values[node.inputs[0]]);
        break;
      case Kind::kCall: {
        GANGWAY_RETURN_IF_ERROR(EvaluateCall(node, evaluate, values));
        break;
      }
    }
  }
  return results;
}

}  // namespace gangway::program
