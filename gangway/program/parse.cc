// The text form of program.h: the parser, line by line.
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"
#include "gangway/program/names.h"
#include "gangway/program/program.h"
#include "gangway/xla/dtype.h"

namespace gangway::program {
namespace {

// Reads one line from the left. Every Take* first skips leading spaces.
class Line {
 public:
  explicit Line(absl::string_view text) : text_(text) {}

  bool Take(absl::string_view token) {
    Skip();
    if (!absl::StartsWith(text_, token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  // As Take, but only if no letter, digit or sign of a name follows.
  bool TakeWord(absl::string_view word) {
    Skip();
    if (!absl::StartsWith(text_, word)) return false;
    const absl::string_view rest = text_.substr(word.size());
    if (!rest.empty() && (absl::ascii_isalnum(rest[0]) || rest[0] == '_')) return false;
    text_ = rest;
    return true;
  }
  // Up to one of `ends`, or to the end of the line.
  absl::string_view TakeUntil(absl::string_view ends) {
    Skip();
    absl::string_view word = text_.substr(0, std::min(text_.size(), text_.find_first_of(ends)));
    text_.remove_prefix(word.size());
    return absl::StripTrailingAsciiWhitespace(word);
  }
  template <typename Number>
  std::optional<Number> TakeNumber() {
    Skip();
    size_t digits = 0;
    while (digits < text_.size() && absl::ascii_isdigit(text_[digits])) ++digits;
    Number number = 0;
    if (!absl::SimpleAtoi(text_.substr(0, digits), &number)) return std::nullopt;
    text_.remove_prefix(digits);
    return number;
  }
  // What is between quotes.
  std::optional<std::string> TakeQuoted() {
    if (!Take("\"")) return std::nullopt;
    size_t end = 0;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return std::nullopt;
    std::string text;
    if (!absl::CUnescape(text_.substr(0, end), &text)) return std::nullopt;
    text_.remove_prefix(end + 1);
    return text;
  }
  bool AtValue() {
    Skip();
    return absl::StartsWith(text_, "%");
  }
  bool AtEnd() {
    Skip();
    return text_.empty() || text_[0] == '#';
  }

 private:
  void Skip() { text_ = absl::StripLeadingAsciiWhitespace(text_); }

  absl::string_view text_;
};

absl::Status Expected(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what));
}

std::optional<int32_t> ElementNamed(absl::string_view name) {
  constexpr int32_t kElementTypes = 64;  // more than have numbers
  static const auto* const all = [] {
    auto* names = new absl::flat_hash_map<std::string, int32_t>();
    for (int32_t i = 0; i < kElementTypes; ++i) {
      const std::string element(xla::ElementName(i));
      if (element != "?") names->emplace(element, i);
    }
    return names;
  }();
  const auto found = all->find(name);
  return found == all->end() ? std::nullopt : std::optional(found->second);
}

absl::StatusOr<ValueId> TakeValue(Line& line) {
  if (!line.Take("%")) return Expected("a value like %0");
  const std::optional<uint32_t> number = line.TakeNumber<uint32_t>();
  if (!number) return Expected("a number after %");
  return *number;
}

absl::StatusOr<std::string> TakeMemory(Line& line) {
  std::string memory(line.TakeUntil("}"));
  if (!line.Take("}")) return Expected("'}'");
  return memory;
}

absl::StatusOr<ArrayShape> TakeShape(Line& line) {
  ArrayShape shape;
  const std::optional<int32_t> element = ElementNamed(line.TakeUntil("[#"));
  if (!element || !line.Take("[")) return Expected("a shape like f32[2,3]");
  shape.element_type = *element;
  while (!line.Take("]")) {
    if (!shape.shard_dims.empty() && !line.Take(",")) return Expected("',' or ']'");
    const std::optional<int64_t> dim = line.TakeNumber<int64_t>();
    if (!dim) return Expected("a dimension");
    shape.shard_dims.push_back(*dim);
  }
  GANGWAY_ASSIGN_OR_RETURN(const int64_t bytes,
                           xla::DenseBytes(shape.element_type, shape.shard_dims));
  shape.shard_bytes = static_cast<uint64_t>(bytes);
  if (line.Take("{")) {
    GANGWAY_ASSIGN_OR_RETURN(shape.memory_kind, TakeMemory(line));
  }
  return shape;
}

// What is on the left of a node.
struct Outputs {
  uint32_t count = 0;
  std::vector<std::optional<ArrayShape>> shapes;
};

// Their numbers must be the next ones, in order.
absl::Status TakeOutputs(Line& line, const Program& program, Outputs& outputs) {
  do {
    GANGWAY_ASSIGN_OR_RETURN(const ValueId value, TakeValue(line));
    const ValueId next = program.value_count() + outputs.count;
    if (value != next) {
      return absl::InvalidArgumentError(
          absl::StrCat("defines %", value, " where %", next, " is the next"));
    }
    ++outputs.count;
    std::optional<ArrayShape>& shape = outputs.shapes.emplace_back();
    if (!line.Take(":")) continue;
    GANGWAY_ASSIGN_OR_RETURN(shape, TakeShape(line));
  } while (line.Take(","));
  return line.Take("=") ? absl::OkStatus() : Expected("'='");
}

absl::Status TakeInputs(Line& line, Node& node) {
  do {
    GANGWAY_ASSIGN_OR_RETURN(node.inputs.emplace_back(), TakeValue(line));
  } while (line.Take(","));
  return absl::OkStatus();
}

absl::Status TakeCall(Line& line, Program& program, Node& node) {
  node.kind = Kind::kCall;
  node.function = program.FunctionNamed(std::string(line.TakeUntil("(")));
  if (!line.Take("(")) return Expected("'('");
  while (!line.Take(")")) {
    const auto index = static_cast<uint32_t>(node.inputs.size());
    if (index > 0 && !line.Take(",")) return Expected("',' or ')'");
    if (line.TakeWord("donate")) node.donated.push_back(index);
    if (line.TakeWord("keep")) node.kept.push_back(index);
    GANGWAY_ASSIGN_OR_RETURN(node.inputs.emplace_back(), TakeValue(line));
  }
  node.is_irregular = line.TakeWord("irregular");
  return absl::OkStatus();
}

absl::Status TakeView(Line& line, Node& node) {
  node.kind = Kind::kView;
  do {
    GANGWAY_ASSIGN_OR_RETURN(node.inputs.emplace_back(), TakeValue(line));
    if (!line.Take("[")) return Expected("a shard like [0]");
    const std::optional<uint32_t> shard = line.TakeNumber<uint32_t>();
    if (!shard || !line.Take("]")) return Expected("a shard like [0]");
    node.shards.push_back(*shard);
  } while (line.Take(","));
  return absl::OkStatus();
}

// A node's kind and inputs.
absl::Status TakeKind(Line& line, Program& program, Node& node) {
  if (line.TakeWord("call")) return TakeCall(line, program, node);
  if (line.TakeWord("view")) return TakeView(line, node);
  if (line.TakeWord("argument")) return absl::OkStatus();
  if (line.TakeWord("transfer")) {
    node.kind = Kind::kTransfer;
  } else if (line.TakeWord("result")) {
    node.kind = Kind::kResult;
  } else if (line.TakeWord("free")) {
    node.kind = Kind::kFree;
    return TakeInputs(line, node);
  } else if (line.TakeWord("replica")) {
    if (!line.TakeWord("of")) return Expected("'of'");
    node.kind = Kind::kView;
  } else {
    return Expected("argument, call, transfer, view, replica, result or free");
  }
  GANGWAY_ASSIGN_OR_RETURN(node.inputs.emplace_back(), TakeValue(line));
  return absl::OkStatus();
}

// Behind a node's inputs, each if it is there: devices, memory, source.
absl::Status TakeRest(Line& line, Program& program, Node& node) {
  if (line.Take("@")) {
    Devices devices;
    do {
      const std::optional<uint32_t> device = line.TakeNumber<uint32_t>();
      if (!device) return Expected("a device number");
      devices.push_back(*device);
    } while (line.Take(","));
    node.devices = program.ListOf(devices);
  }
  if (line.Take("{")) {
    GANGWAY_ASSIGN_OR_RETURN(node.memory_kind, TakeMemory(line));
  }
  if (line.TakeWord("from")) {
    const std::optional<std::string> source = line.TakeQuoted();
    if (!source) return Expected("a source in quotes");
    node.source = program.SourceNamed(*source);
  }
  return absl::OkStatus();
}

absl::Status TakeNode(Line& line, Program& program) {
  Outputs outputs;
  Node node;
  if (line.AtValue()) GANGWAY_RETURN_IF_ERROR(TakeOutputs(line, program, outputs));
  GANGWAY_RETURN_IF_ERROR(TakeKind(line, program, node));
  const bool has_output = node.kind != Kind::kResult && node.kind != Kind::kFree;
  if (node.kind != Kind::kCall && outputs.count != (has_output ? 1 : 0))
    return Expected(has_output ? "one value on the left" : "no value on the left");
  GANGWAY_RETURN_IF_ERROR(TakeRest(line, program, node));
  node.output_count = outputs.count;
  const ValueId first = program.Add(std::move(node));
  for (uint32_t i = 0; i < outputs.count; ++i)
    if (outputs.shapes[i]) program.SetShape(first + i, *outputs.shapes[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TakeName(Line& line) {
  if (std::optional<std::string> quoted = line.TakeQuoted()) return *std::move(quoted);
  std::string name(line.TakeUntil(" #"));
  if (!IsName(name)) return Expected("a name, or one in quotes");
  return name;
}

}  // namespace

absl::StatusOr<Program> Parse(std::string_view text) {
  Program program;
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    Line line(raw);
    if (line.AtEnd()) continue;
    absl::Status status;
    if (program.nodes().empty() && program.name().empty() && line.TakeWord("program")) {
      absl::StatusOr<std::string> name = TakeName(line);
      status = name.status();
      if (name.ok()) program = Program(*std::move(name));
    } else {
      status = TakeNode(line, program);
    }
    if (status.ok() && !line.AtEnd()) status = Expected("the end of the line");
    GANGWAY_RETURN_IF_ERROR(status, "line ", number);
  }
  return program;
}

}  // namespace gangway::program
