// Implementation of option_value.h.
#include "gangway/xla/option_value.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"

namespace gangway::xla {
namespace {

using ::google::protobuf::UnknownField;
using ::google::protobuf::UnknownFieldSet;

constexpr size_t kElementsMax = 64;   // of a list
constexpr int kKey = 1, kMapped = 2;  // of a map's entry
// Of OptionOverrideProto.
constexpr int kText = 1, kBool = 2, kInt = 3, kDouble = 4;

absl::Status Malformed(const CompileOption& option) {
  constexpr const char* kKinds[] = {"true or false", "a number", "a number", "a number",
                                    "a name",        "names",    "a text",   "texts",
                                    "a map",         "a message"};  // in the order of OptionKind
  return absl::InvalidArgumentError(
      absl::StrCat("the compile option '", std::string(option.name),
                   "' is refused: its value has another type; it may be ",
                   kKinds[static_cast<int>(option.kind)]));
}

bool IsVarint(OptionKind kind) {
  return kind == OptionKind::kBool || kind == OptionKind::kInt32 || kind == OptionKind::kInt64 ||
         kind == OptionKind::kEnum;
}

bool IsList(OptionKind kind) { return kind == OptionKind::kTexts || kind == OptionKind::kEnums; }

// A varint as protobuf reads it for a field of this kind.
std::string Number(OptionKind kind, uint64_t varint) {
  if (kind == OptionKind::kBool) return varint == 0 ? "0" : "1";
  if (kind == OptionKind::kInt64) return absl::StrCat(static_cast<int64_t>(varint));
  return absl::StrCat(static_cast<int32_t>(varint));
}

std::vector<std::string> Elements(std::string_view list, char by = ',') {
  if (list.empty()) return {};
  return absl::StrSplit(absl::string_view(list.data(), list.size()), by);
}

// One spelling of a set: each text once, in order.
std::string Joined(const CompileOption& option, std::vector<std::string> elements) {
  if (!option.values.empty()) {
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }
  return absl::StrJoin(elements, ",");
}

absl::Status AddPacked(const CompileOption& option, const std::string& packed,
                       std::vector<std::string>& elements) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(packed.data()),
                                                static_cast<int>(packed.size()));
  while (stream.CurrentPosition() < static_cast<int>(packed.size())) {
    uint64_t varint = 0;
    if (!stream.ReadVarint64(&varint) || elements.size() >= kElementsMax) return Malformed(option);
    elements.push_back(Number(OptionKind::kEnum, varint));
  }
  return absl::OkStatus();
}

// "key=value", in which neither has a separator.
absl::StatusOr<std::string> MapEntry(const CompileOption& option, const std::string& serialized) {
  UnknownFieldSet entry;
  std::string texts[2];
  if (!entry.ParseFromString(serialized)) return Malformed(option);
  for (int i = 0; i < entry.field_count(); ++i) {
    const UnknownField& field = entry.field(i);
    if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        (field.number() != kKey && field.number() != kMapped) ||
        field.length_delimited().find_first_of("=,") != std::string::npos)
      return Malformed(option);
    texts[field.number() - kKey] = field.length_delimited();
  }
  return absl::StrCat(texts[0], "=", texts[1]);
}

absl::Status AddElement(const CompileOption& option, const UnknownField& field,
                        std::vector<std::string>& elements) {
  const bool is_bytes = field.type() == UnknownField::TYPE_LENGTH_DELIMITED;
  if (elements.size() >= kElementsMax) return Malformed(option);
  if (option.kind == OptionKind::kEnums) {
    if (is_bytes) return AddPacked(option, field.length_delimited(), elements);
    if (field.type() != UnknownField::TYPE_VARINT) return Malformed(option);
    elements.push_back(Number(OptionKind::kEnum, field.varint()));
    return absl::OkStatus();
  }
  if (!is_bytes) return Malformed(option);
  if (option.kind == OptionKind::kTexts) {
    for (std::string& each : Elements(field.length_delimited()))
      elements.push_back(std::move(each));
    return absl::OkStatus();
  }
  GANGWAY_ASSIGN_OR_RETURN(elements.emplace_back(), MapEntry(option, field.length_delimited()));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadScalar(const CompileOption& option, const UnknownField& field) {
  if (IsVarint(option.kind)) {
    if (field.type() != UnknownField::TYPE_VARINT) return Malformed(option);
    return Number(option.kind, field.varint());
  }
  if (option.kind == OptionKind::kFloat) {
    if (field.type() != UnknownField::TYPE_FIXED32) return Malformed(option);
    return absl::StrFormat("%.9g", std::bit_cast<float>(field.fixed32()));
  }
  if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED) return Malformed(option);
  return field.length_delimited();
}

std::optional<std::string> BoolFromText(const std::string& text) {
  if (text == "1" || absl::EqualsIgnoreCase(text, "true")) return "1";
  if (text == "0" || absl::EqualsIgnoreCase(text, "false")) return "0";
  return std::nullopt;
}

// By the name of the value, or its number.
std::optional<std::string> EnumFromText(const CompileOption& option, const std::string& text) {
  const std::vector<std::string> names = Elements(option.values, '|');
  const auto named = std::find(names.begin(), names.end(), text);
  if (named != names.end()) return absl::StrCat(named - names.begin());
  int32_t number = 0;
  return absl::SimpleAtoi(text, &number) ? std::optional(absl::StrCat(number)) : std::nullopt;
}

std::optional<std::string> FromText(const CompileOption& option, const std::string& text) {
  switch (option.kind) {
    case OptionKind::kBool:
      return BoolFromText(text);
    case OptionKind::kInt32:
    case OptionKind::kInt64: {
      int64_t number = 0;
      return absl::SimpleAtoi(text, &number) ? std::optional(absl::StrCat(number)) : std::nullopt;
    }
    case OptionKind::kFloat: {
      float number = 0;
      return absl::SimpleAtof(text, &number) ? std::optional(absl::StrFormat("%.9g", number))
                                             : std::nullopt;
    }
    case OptionKind::kEnum:
      return EnumFromText(option, text);
    case OptionKind::kTexts:
      return Joined(option, Elements(text));
    default:
      return text;
  }
}

bool IsOneOf(const CompileOption& option, const std::string& value) {
  return Lists(option.values, value);
}

bool IsNumberInRange(const CompileOption& option, const std::string& value) {
  int64_t number = 0;
  return absl::SimpleAtoi(value, &number) && number >= option.min && number <= option.max;
}

}  // namespace

const CompileOption* FindOption(int number) {
  const auto* const found = std::lower_bound(
      std::begin(kOptions), std::end(kOptions), number,
      [](const CompileOption& option, int wanted) { return option.number < wanted; });
  return found != std::end(kOptions) && found->number == number ? found : nullptr;
}

const CompileOption* FindOption(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kOptions), std::end(kOptions),
                   [name](const CompileOption& option) { return option.name == name; });
  return found == std::end(kOptions) ? nullptr : found;
}

absl::StatusOr<std::string> ReadValue(const CompileOption& option, const UnknownFieldSet& fields) {
  std::vector<std::string> elements;
  std::string last;
  const bool is_list = IsList(option.kind) || option.kind == OptionKind::kMap;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() != option.number) continue;
    if (is_list) {
      GANGWAY_RETURN_IF_ERROR(AddElement(option, fields.field(i), elements));
    } else {
      GANGWAY_ASSIGN_OR_RETURN(last, ReadScalar(option, fields.field(i)));
    }
  }
  if (!is_list) return last;
  if (option.kind == OptionKind::kMap) std::sort(elements.begin(), elements.end());
  return Joined(option, std::move(elements));
}

absl::StatusOr<std::string> ReadOverride(const CompileOption& option,
                                         const std::string& serialized) {
  UnknownFieldSet value;
  if (!value.ParseFromString(serialized) || value.field_count() != 1) return Malformed(option);
  const UnknownField& field = value.field(0);
  const bool is_varint = field.type() == UnknownField::TYPE_VARINT;
  std::optional<std::string> read;
  if (field.number() == kText && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
    read = FromText(option, field.length_delimited());
  } else if (field.number() == kBool && is_varint && option.kind == OptionKind::kBool) {
    read = Number(OptionKind::kBool, field.varint());
  } else if (field.number() == kInt && is_varint) {
    const std::string number = Number(OptionKind::kInt64, field.varint());
    if (IsVarint(option.kind) || option.kind == OptionKind::kFloat) read = FromText(option, number);
  } else if (field.number() == kDouble && field.type() == UnknownField::TYPE_FIXED64 &&
             option.kind == OptionKind::kFloat) {
    read = absl::StrFormat("%.9g", static_cast<float>(std::bit_cast<double>(field.fixed64())));
  }
  if (!read) return Malformed(option);
  return *std::move(read);
}

void WriteValue(const CompileOption& option, const std::string& value, UnknownFieldSet& fields) {
  int64_t number = 0;
  float real = 0;
  if (IsVarint(option.kind)) {
    if (absl::SimpleAtoi(value, &number))
      fields.AddVarint(option.number, static_cast<uint64_t>(number));
  } else if (option.kind == OptionKind::kFloat) {
    if (absl::SimpleAtof(value, &real))
      fields.AddFixed32(option.number, std::bit_cast<uint32_t>(real));
  } else if (option.kind == OptionKind::kEnums) {
    for (const std::string& element : Elements(value)) {
      if (absl::SimpleAtoi(element, &number))
        fields.AddVarint(option.number, static_cast<uint64_t>(number));
    }
  } else if (option.kind == OptionKind::kTexts) {
    for (const std::string& element : Elements(value))
      fields.AddLengthDelimited(option.number, element);
  } else if (option.kind == OptionKind::kMap) {
    for (const std::string& element : Elements(value)) {
      const std::vector<std::string> halves = absl::StrSplit(element, absl::MaxSplits('=', 1));
      UnknownFieldSet entry;
      entry.AddLengthDelimited(kKey, halves[0]);
      if (halves.size() > 1) entry.AddLengthDelimited(kMapped, halves[1]);
      std::string bytes;
      entry.SerializeToString(&bytes);
      fields.AddLengthDelimited(option.number, bytes);
    }
  } else {
    fields.AddLengthDelimited(option.number, value);
  }
}

std::string NamedValue(const CompileOption& option, const std::string& value) {
  if (option.kind == OptionKind::kBool) return value == "0" ? "False" : "True";
  if (option.kind != OptionKind::kEnum) return value;
  const std::vector<std::string> names = Elements(option.values, '|');
  size_t number = 0;
  return absl::SimpleAtoi(value, &number) && number < names.size() ? names[number] : value;
}

bool Lists(std::string_view list, std::string_view value) {
  for (const auto& each : absl::StrSplit(absl::string_view(list.data(), list.size()), '|'))
    if (each == absl::string_view(value.data(), value.size())) return true;
  return false;
}

bool IsInRange(const CompileOption& option, const std::string& value) {
  float real = 0;
  switch (option.kind) {
    case OptionKind::kBool:
    case OptionKind::kInt32:
    case OptionKind::kInt64:
    case OptionKind::kEnum:
      return IsNumberInRange(option, value);
    case OptionKind::kEnums: {
      const std::vector<std::string> all = Elements(value);
      return std::all_of(all.begin(), all.end(), [&option](const std::string& each) {
        return IsNumberInRange(option, each);
      });
    }
    case OptionKind::kFloat:
      return absl::SimpleAtof(value, &real) && std::isfinite(real) &&
             real >= static_cast<float>(option.min) && real <= static_cast<float>(option.max);
    case OptionKind::kText:
      return IsOneOf(option, value);
    case OptionKind::kTexts: {
      const std::vector<std::string> all = Elements(value);
      return std::all_of(all.begin(), all.end(),
                         [&option](const std::string& each) { return IsOneOf(option, each); });
    }
    default:
      return false;
  }
}

bool IsZero(std::string_view value) { return value.empty() || value == "0"; }

}  // namespace gangway::xla
