// Implementation of program.h: building programs.
#include "gangway/program/program.h"

#include "absl/strings/str_cat.h"

#include "gangway/program/names.h"

namespace gangway::program {
namespace {

// The index of an entry, which is added if it is new.
template <typename Entry>
uint32_t Intern(const Entry& entry, std::vector<Entry>& table,
                absl::flat_hash_map<Entry, uint32_t>& lookup) {
  const auto [it, is_new] = lookup.try_emplace(entry, static_cast<uint32_t>(table.size()));
  if (is_new) table.push_back(entry);
  return it->second;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kArgument:
      return "argument";
    case Kind::kCall:
      return "call";
    case Kind::kTransfer:
      return "transfer";
    case Kind::kView:
      return "view";
    case Kind::kResult:
      return "result";
    case Kind::kFree:
      return "free";
  }
  return "?";
}

}  // namespace

ValueId Program::Add(Node node) {
  node.first_output = value_count();
  values_.resize(values_.size() + node.output_count,
                 {.node = static_cast<uint32_t>(nodes_.size()), .devices = node.devices});
  argument_count_ += node.kind == Kind::kArgument ? 1 : 0;
  result_count_ += node.kind == Kind::kResult ? 1 : 0;
  work_count_ += node.kind == Kind::kCall || node.kind == Kind::kTransfer ? 1 : 0;
  nodes_.push_back(std::move(node));
  return nodes_.back().first_output;
}

ValueId Program::AddArgument(const Devices& devices) {
  Node node{.kind = Kind::kArgument, .output_count = 1};
  if (!devices.empty()) node.devices = ListOf(devices);
  return Add(std::move(node));
}

ValueId Program::AddCall(std::string_view function, std::vector<ValueId> inputs,
                         std::vector<uint32_t> donated, uint32_t output_count,
                         const Devices& devices) {
  Node node{.kind = Kind::kCall,
            .function = FunctionNamed(function),
            .inputs = std::move(inputs),
            .donated = std::move(donated),
            .output_count = output_count};
  if (!devices.empty()) node.devices = ListOf(devices);
  return Add(std::move(node));
}

ValueId Program::AddTransfer(ValueId input, const Devices& devices, std::string memory_kind) {
  Node node{.kind = Kind::kTransfer,
            .inputs = {input},
            .memory_kind = std::move(memory_kind),
            .output_count = 1};
  if (!devices.empty()) node.devices = ListOf(devices);
  return Add(std::move(node));
}

ValueId Program::AddView(std::vector<ValueId> inputs, std::vector<uint32_t> shards,
                         const Devices& devices) {
  Node node{.kind = Kind::kView,
            .inputs = std::move(inputs),
            .shards = std::move(shards),
            .output_count = 1};
  if (!devices.empty()) node.devices = ListOf(devices);
  return Add(std::move(node));
}

void Program::AddResult(ValueId input) { Add({.kind = Kind::kResult, .inputs = {input}}); }

void Program::SetSource(std::string_view source) { nodes_.back().source = SourceNamed(source); }

void Program::SetKept(std::vector<uint32_t> kept) { nodes_.back().kept = std::move(kept); }

void Program::SetShape(ValueId value, const ArrayShape& shape) {
  values_[value].shape = ShapeIdOf(shape);
}

FunctionId Program::FunctionNamed(std::string_view function) {
  return Intern(std::string(function), functions_, lookups_.functions);
}

DevicesId Program::ListOf(const Devices& devices) {
  return Intern(devices, device_lists_, lookups_.device_lists);
}

ShapeId Program::ShapeIdOf(const ArrayShape& shape) {
  return Intern(shape, shapes_, lookups_.shapes);
}

SourceId Program::SourceNamed(std::string_view source) {
  return Intern(std::string(source), sources_, lookups_.sources);
}

std::string Program::Describe(size_t index, std::string_view function) const {
  const Node& node = nodes_[index];
  std::string text = absl::StrCat("node ", index, " (", NameOf(node.kind));
  if (node.kind == Kind::kCall && node.function < functions_.size())
    absl::StrAppend(&text, " ", ShortText(function.empty() ? functions_[node.function] : function));
  if (node.source && *node.source < sources_.size())
    absl::StrAppend(&text, ", ", ShortText(sources_[*node.source]));
  return text + ")";
}

}  // namespace gangway::program
