// The text form of program.h: the printer.
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/program/names.h"
#include "gangway/program/program.h"

namespace gangway::program {
namespace {

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

void PrintOutputs(const Program& program, const Node& node, std::string& text) {
  for (uint32_t i = 0; i < node.output_count; ++i) {
    const ValueId output = node.first_output + i;
    absl::StrAppend(&text, i == 0 ? "%" : ", %", output);
    if (const auto shape = program.values()[output].shape)
      absl::StrAppend(&text, ": ", ToText(program.shapes()[*shape]));
  }
  if (node.output_count > 0) text += " = ";
}

void PrintCall(const Program& program, const Node& node, std::string& text) {
  absl::StrAppend(&text, "call ", program.functions()[node.function], "(");
  size_t donated = 0, kept = 0;  // of the lists, what was printed
  for (uint32_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) text += ", ";
    if (donated < node.donated.size() && node.donated[donated] == i) {
      text += "donate ";
      ++donated;
    }
    if (kept < node.kept.size() && node.kept[kept] == i) {
      text += "keep ";
      ++kept;
    }
    absl::StrAppend(&text, "%", node.inputs[i]);
  }
  text += node.is_irregular ? ") irregular" : ")";
}

void PrintView(const Node& node, std::string& text) {
  if (node.shards.empty()) {
    absl::StrAppend(&text, "replica of %", node.inputs[0]);
    return;
  }
  text += "view";
  for (size_t i = 0; i < node.shards.size(); ++i)
    absl::StrAppend(&text, i == 0 ? " %" : ", %", node.inputs[i], "[", node.shards[i], "]");
}

void PrintNode(const Program& program, const Node& node, std::string& text) {
  PrintOutputs(program, node, text);
  switch (node.kind) {
    case Kind::kArgument:
      text += "argument";
      break;
    case Kind::kCall:
      PrintCall(program, node, text);
      break;
    case Kind::kTransfer:
      absl::StrAppend(&text, "transfer %", node.inputs[0]);
      break;
    case Kind::kView:
      PrintView(node, text);
      break;
    case Kind::kResult:
      absl::StrAppend(&text, "result %", node.inputs[0]);
      break;
    case Kind::kFree:
      absl::StrAppend(&text, "free %", absl::StrJoin(node.inputs, ", %"));
      break;
  }
  if (node.devices)
    absl::StrAppend(&text, " @", absl::StrJoin(program.device_lists()[*node.devices], ","));
  if (!node.memory_kind.empty()) absl::StrAppend(&text, " {", node.memory_kind, "}");
  if (node.source) absl::StrAppend(&text, " from ", Quoted(program.sources()[*node.source]));
  text += "\n";
}

}  // namespace

std::string Print(const Program& program) {
  std::string text;
  const std::string& name = program.name();
  if (!name.empty()) absl::StrAppend(&text, "program ", IsName(name) ? name : Quoted(name), "\n");
  for (const Node& node : program.nodes()) PrintNode(program, node, text);
  return text;
}

}  // namespace gangway::program
