// The text form of program.h: a printer and a line-by-line parser.
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"
#include "gangway/program/program.h"

namespace gangway::program {
namespace {

// Reads one line from the left. Every Take* first skips leading spaces.
class Line {
 public:
  explicit Line(absl::string_view text) : text_(text) {}

  bool Take(absl::string_view token) {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  // Up to one of `ends`, or to the end of the line.
  absl::string_view TakeUntil(absl::string_view ends) {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    absl::string_view word = text_.substr(0, std::min(text_.size(), text_.find_first_of(ends)));
    text_.remove_prefix(word.size());
    return absl::StripTrailingAsciiWhitespace(word);
  }
  std::optional<uint32_t> TakeNumber() {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    size_t digits = 0;
    while (digits < text_.size() && absl::ascii_isdigit(text_[digits])) ++digits;
    uint32_t number = 0;
    if (!absl::SimpleAtoi(text_.substr(0, digits), &number)) return std::nullopt;
    text_.remove_prefix(digits);
    return number;
  }
  bool AtEnd() { return absl::StripLeadingAsciiWhitespace(text_).empty(); }

 private:
  absl::string_view text_;
};

absl::Status Expected(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what));
}

absl::StatusOr<ValueId> TakeValue(Line& line) {
  if (!line.Take("%")) return Expected("a value like %0");
  std::optional<uint32_t> number = line.TakeNumber();
  if (!number) return Expected("a number after %");
  return *number;
}

absl::Status TakeDevices(Line& line, std::vector<uint32_t>& devices) {
  if (!line.Take("@")) return Expected("devices like @0,1");
  do {
    std::optional<uint32_t> device = line.TakeNumber();
    if (!device) return Expected("a device number");
    devices.push_back(*device);
  } while (line.Take(","));
  return absl::OkStatus();
}

// The values before '='. Their numbers must be the next ones, in order.
absl::Status TakeOutputs(Line& line, const Program& program, uint32_t& count) {
  do {
    GANGWAY_ASSIGN_OR_RETURN(ValueId value, TakeValue(line));
    if (value != program.value_count() + count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "defines %", value, " where %", program.value_count() + count, " is the next"));
    }
    ++count;
  } while (line.Take(","));
  return line.Take("=") ? absl::OkStatus() : Expected("'='");
}

absl::Status TakeCall(Line& line, uint32_t output_count, Program& program) {
  Node node;
  node.executable = std::string(line.TakeUntil("("));
  if (!line.Take("(")) return Expected("'('");
  while (!line.Take(")")) {
    if (!node.inputs.empty() && !line.Take(",")) return Expected("',' or ')'");
    if (line.Take("donate ")) node.donated.push_back(static_cast<uint32_t>(node.inputs.size()));
    GANGWAY_ASSIGN_OR_RETURN(ValueId input, TakeValue(line));
    node.inputs.push_back(input);
  }
  GANGWAY_RETURN_IF_ERROR(TakeDevices(line, node.devices));
  program.AddCall(std::move(node.executable), std::move(node.inputs), std::move(node.donated),
                  output_count, std::move(node.devices));
  return absl::OkStatus();
}

absl::Status TakeNode(Line& line, Program& program) {
  if (line.Take("result ")) {
    GANGWAY_ASSIGN_OR_RETURN(ValueId value, TakeValue(line));
    program.AddResult(value);
    return absl::OkStatus();
  }
  uint32_t outputs = 0;
  if (!line.Take("call ")) {
    GANGWAY_RETURN_IF_ERROR(TakeOutputs(line, program, outputs));
    if (line.Take("call ")) return TakeCall(line, outputs, program);
  } else {
    return TakeCall(line, 0, program);
  }
  if (outputs != 1) return Expected("one value on the left of an argument or transfer");
  std::vector<uint32_t> devices;
  if (line.Take("transfer ")) {
    GANGWAY_ASSIGN_OR_RETURN(ValueId input, TakeValue(line));
    GANGWAY_RETURN_IF_ERROR(TakeDevices(line, devices));
    program.AddTransfer(input, std::move(devices));
    return absl::OkStatus();
  }
  if (!line.Take("argument ")) return Expected("argument, call, transfer or result");
  GANGWAY_RETURN_IF_ERROR(TakeDevices(line, devices));
  program.AddArgument(std::move(devices));
  return absl::OkStatus();
}

}  // namespace

std::string Print(const Program& program) {
  std::string text;
  auto value = [](std::string* out, ValueId id) { absl::StrAppend(out, "%", id); };
  for (const Node& node : program.nodes()) {
    std::vector<ValueId> outputs;
    for (uint32_t i = 0; i < node.output_count; ++i) outputs.push_back(node.first_output + i);
    absl::StrAppend(&text, absl::StrJoin(outputs, ", ", value), outputs.empty() ? "" : " = ");
    switch (node.kind) {
      case Kind::kArgument:
        text += "argument";
        break;
      case Kind::kTransfer:
        absl::StrAppend(&text, "transfer %", node.inputs[0]);
        break;
      case Kind::kResult:
        absl::StrAppend(&text, "result %", node.inputs[0]);
        break;
      case Kind::kCall: {
        std::vector<std::string> inputs;
        for (ValueId input : node.inputs) inputs.push_back(absl::StrCat("%", input));
        for (uint32_t index : node.donated) inputs[index] = absl::StrCat("donate ", inputs[index]);
        absl::StrAppend(&text, "call ", node.executable, "(", absl::StrJoin(inputs, ", "), ")");
        break;
      }
    }
    if (!node.devices.empty()) absl::StrAppend(&text, " @", absl::StrJoin(node.devices, ","));
    text += "\n";
  }
  return text;
}

absl::StatusOr<Program> Parse(std::string_view text) {
  Program program;
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    Line line(raw.substr(0, std::min(raw.size(), raw.find('#'))));
    if (line.AtEnd()) continue;
    absl::Status status = TakeNode(line, program);
    if (status.ok() && !line.AtEnd()) status = Expected("the end of the line");
    GANGWAY_RETURN_IF_ERROR(status, "line ", number);
  }
  return program;
}

}  // namespace gangway::program
