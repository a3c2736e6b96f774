// Implementation of program.h, except the text form: building and verifying programs.
#include "gangway/program/program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::program {
namespace {

bool IsName(const std::string& name) {
  auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':' || c == '-' || c == '/';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), legal);
}

// What the verifier knows of the values defined so far.
struct Known {
  std::vector<size_t> device_counts;
  std::vector<bool> donated;
};

absl::Status CheckCounts(const Node& node) {
  bool call = node.kind == Kind::kCall;
  bool result = node.kind == Kind::kResult;
  size_t inputs = node.kind == Kind::kArgument ? 0 : 1;
  if (!call && node.inputs.size() != inputs)
    return absl::InvalidArgumentError("has the wrong number of inputs");
  if (!call && node.output_count != (result ? 0 : 1)) {
    return absl::InvalidArgumentError("has the wrong number of outputs");
  }
  if (!call && (!node.executable.empty() || !node.donated.empty())) {
    return absl::InvalidArgumentError("is not a call but names an executable or donates");
  }
  if (call && !IsName(node.executable)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "calls '", node.executable, "'; a name has letters, digits and _ . : - / only"));
  }
  if (result != node.devices.empty()) {
    return absl::InvalidArgumentError(result ? "is a result but names devices" : "names no device");
  }
  std::set<uint32_t> distinct(node.devices.begin(), node.devices.end());
  if (distinct.size() != node.devices.size())
    return absl::InvalidArgumentError("names a device twice");
  return absl::OkStatus();
}

absl::Status CheckInputs(const Node& node, Known& known) {
  for (ValueId input : node.inputs) {
    if (input >= known.donated.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("uses %", input, ", which is not defined before it"));
    }
    if (known.donated[input]) {
      return absl::InvalidArgumentError(
          absl::StrCat("uses %", input, ", which was donated before"));
    }
  }
  if (node.kind == Kind::kTransfer && known.device_counts[node.inputs[0]] != node.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("moves ", known.device_counts[node.inputs[0]],
                                                   " shards to ", node.devices.size(), " devices"));
  }
  if (!std::is_sorted(node.donated.begin(), node.donated.end(), std::less_equal<>())) {
    return absl::InvalidArgumentError("donates indices that do not increase");
  }
  for (uint32_t index : node.donated) {
    if (index >= node.inputs.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("donates input ", index, ", which it does not have"));
    }
    if (std::count(node.inputs.begin(), node.inputs.end(), node.inputs[index]) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("donates %", node.inputs[index], " and uses it twice"));
    }
    known.donated[node.inputs[index]] = true;
  }
  return absl::OkStatus();
}

}  // namespace

ValueId Program::Add(Node node) {
  node.first_output = value_count_;
  value_count_ += node.output_count;
  nodes_.push_back(std::move(node));
  return nodes_.back().first_output;
}

ValueId Program::AddArgument(std::vector<uint32_t> devices) {
  return Add({.kind = Kind::kArgument, .devices = std::move(devices), .output_count = 1});
}

ValueId Program::AddCall(std::string executable, std::vector<ValueId> inputs,
                         std::vector<uint32_t> donated, uint32_t output_count,
                         std::vector<uint32_t> devices) {
  return Add({.kind = Kind::kCall,
              .executable = std::move(executable),
              .inputs = std::move(inputs),
              .donated = std::move(donated),
              .devices = std::move(devices),
              .output_count = output_count});
}

ValueId Program::AddTransfer(ValueId input, std::vector<uint32_t> devices) {
  return Add({.kind = Kind::kTransfer,
              .inputs = {input},
              .devices = std::move(devices),
              .output_count = 1});
}

void Program::AddResult(ValueId input) { Add({.kind = Kind::kResult, .inputs = {input}}); }

absl::Status Verify(const Program& program) {
  Known known;
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    const Node& node = program.nodes()[i];
    absl::Status status = CheckCounts(node);
    if (status.ok()) status = CheckInputs(node, known);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat("node ", i, " ", status.message()));
    known.device_counts.resize(known.device_counts.size() + node.output_count, node.devices.size());
    known.donated.resize(known.device_counts.size(), false);
  }
  return absl::OkStatus();
}

}  // namespace gangway::program
