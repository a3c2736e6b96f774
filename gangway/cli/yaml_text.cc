// Implementation of yaml_text.h.
#include "gangway/cli/yaml_text.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gangway::cli {
namespace {

constexpr int kIndent = 2;

// Words that YAML 1.1 reads as a truth value or as null, in lower case.
constexpr std::array<std::string_view, 9> kWords = {"true", "false", "yes", "no", "on",
                                                    "off",  "null",  "y",   "n"};

bool IsPlain(const std::string& text) {
  if (text.empty() || !(absl::ascii_isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/'))
    return false;
  const bool simple = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-' || c == ':';
  });
  return simple && text.back() != ':' &&
         std::find(kWords.begin(), kWords.end(), absl::AsciiStrToLower(text)) == kWords.end();
}

// Whether the text can be a block: the first line must not look indented, and no line may hold a character that a block
// cannot contain.
bool IsBlock(const std::string& text) {
  if (text.find('\n') == std::string::npos || text[0] == '\n' || text[0] == ' ') return false;
  if (text.ends_with("\n\n")) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c == '\n' || c == '\t' || (c >= ' ' && c != 0x7f);
  });
}

std::string Quoted(const Json& json) { return ToText(json); }

void WriteBlock(const std::string& text, int indent, std::string& out) {
  const bool ends = text.back() == '\n';
  absl::StrAppend(&out, ends ? "|\n" : "|-\n");
  const std::vector<std::string> lines =
      absl::StrSplit(text.substr(0, text.size() - (ends ? 1 : 0)), '\n');
  for (const std::string& line : lines) {
    if (!line.empty()) out.append(static_cast<size_t>(indent), ' ');
    absl::StrAppend(&out, line, "\n");
  }
}

void WriteScalar(const Json& json, int indent, std::string& out) {
  if (!json.is_string()) {
    absl::StrAppend(&out, ToText(json), "\n");
    return;
  }
  const auto text = json.get<std::string>();
  if (IsPlain(text)) {
    absl::StrAppend(&out, text, "\n");
  } else if (IsBlock(text) && IsUtf8(text)) {
    WriteBlock(text, indent, out);
  } else {
    absl::StrAppend(&out, Quoted(json), "\n");
  }
}

bool IsNested(const Json& json) { return json.is_structured() && !json.empty(); }

// `first_indent`: of the first line, whose beginning the caller has written.
void Write(const Json& json, int indent, int first_indent, std::string& out) {
  bool first = true;
  auto begin_line = [&] {
    out.append(static_cast<size_t>(first ? first_indent : indent), ' ');
    first = false;
  };
  if (json.is_array()) {
    for (const Json& each : json) {
      begin_line();
      absl::StrAppend(&out, "- ");
      if (IsNested(each)) {
        Write(each, indent + kIndent, 0, out);
      } else {
        WriteScalar(each, indent + kIndent, out);
      }
    }
    return;
  }
  for (const auto& [key, value] : json.items()) {
    begin_line();
    absl::StrAppend(&out, IsPlain(key) ? key : Quoted(key), ":");
    if (IsNested(value)) {
      absl::StrAppend(&out, "\n");
      const int inner = value.is_array() ? indent : indent + kIndent;
      Write(value, inner, inner, out);
    } else {
      absl::StrAppend(&out, " ");
      WriteScalar(value, indent + kIndent, out);
    }
  }
}

}  // namespace

bool IsUtf8(const std::string& text) { return Json::parse(ToText(Json(text))) == Json(text); }

std::string ToYaml(const Json& json) {
  std::string out;
  if (IsNested(json)) {
    Write(json, 0, 0, out);
  } else {
    WriteScalar(json, kIndent, out);
  }
  return out;
}

}  // namespace gangway::cli
