// Implementation of attributes.h.
#include "gangway/compiler/check_calls/attributes.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/compiler/check_calls/text_scanner.h"

namespace gangway::compiler::calls {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Malformed(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("its attributes are malformed: ", View(why)));
}

// The bits of i8, ui16, ...; 0: no integer type.
int Bits(std::string_view type) {
  if (type.starts_with("u")) type.remove_prefix(1);
  if (!type.starts_with("i")) return 0;
  type.remove_prefix(1);
  for (const int bits : {8, 16, 32, 64})
    if (type == std::to_string(bits)) return bits;
  return 0;
}

bool Fits(std::string_view digits, std::string_view type, int64_t& value) {
  const int bits = Bits(type);
  if (bits == 0) return false;
  const absl::string_view text = View(digits);
  if (type.starts_with("u")) {
    uint64_t unsigned_value = 0;
    if (!absl::SimpleAtoi(text, &unsigned_value)) return false;
    if (bits < 64 && unsigned_value >> bits != 0) return false;
    value = static_cast<int64_t>(unsigned_value);
    return true;
  }
  if (!absl::SimpleAtoi(text, &value)) return false;
  return bits == 64 || (value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1));
}

bool IsInteger(std::string_view number) {
  if (number.starts_with("-")) number.remove_prefix(1);
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

// MLIR's decimal floats have a point. Its hexadecimal ones are bits, which absl would read as another number.
bool IsDecimalFloat(std::string_view number) {
  return number.find('.') != std::string_view::npos &&
         number.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) {}

  absl::StatusOr<Attributes> Run() {
    GANGWAY_ASSIGN_OR_RETURN(Attributes attributes, Dictionary(0));
    if (!scanner_.AtEnd()) return Malformed("something follows the dictionary");
    return attributes;
  }

 private:
  absl::StatusOr<Attributes> Dictionary(int depth) {
    if (!scanner_.Take("{")) return Malformed("a dictionary begins with {");
    Attributes attributes;
    if (scanner_.Take("}")) return attributes;
    do {
      GANGWAY_ASSIGN_OR_RETURN(std::string name, Name());
      if (attributes.size() == kAttributesMax) return Malformed("they are too many");
      if (!scanner_.Take("=")) return Malformed(absl::StrCat(name, " has no value"));
      GANGWAY_ASSIGN_OR_RETURN(Attribute value, Value(depth));
      const auto [found, is_new] = attributes.emplace(std::move(name), std::move(value));
      if (!is_new) return Malformed(absl::StrCat(found->first, " comes twice"));
    } while (scanner_.Take(","));
    if (!scanner_.Take("}")) return Malformed("a dictionary ends with }");
    return attributes;
  }

  absl::StatusOr<std::string> Name() {
    if (scanner_.NextIs("\"")) {
      std::optional<std::string> name = scanner_.String();
      if (!name) return Malformed("a name has no end");
      return *std::move(name);
    }
    const std::string_view word = scanner_.Word();
    if (word.empty()) return Malformed("a name is missing");
    return std::string(word);
  }

  absl::StatusOr<Attribute> Value(int depth) {
    if (depth >= kAttributesDepthMax) return Malformed("they lie too deep");
    if (scanner_.NextIs("\"")) {
      std::optional<std::string> text = scanner_.String();
      if (!text) return Malformed("a string has no end");
      return Attribute{.kind = Attribute::Kind::kString, .text = *std::move(text)};
    }
    if (scanner_.NextIs("{")) {
      GANGWAY_RETURN_IF_ERROR(Dictionary(depth + 1));
      return Attribute{};
    }
    if (scanner_.Take("[")) return List("]", depth);
    if (const std::string_view number = scanner_.Number(); !number.empty()) return Numeric(number);
    const std::string_view word = scanner_.Word();
    if (word == "true" || word == "false")
      return Attribute{.kind = Attribute::Kind::kBool, .integer = word == "true"};
    if (word == "array" && scanner_.Take("<")) return TypedArray(depth);
    return Malformed("a value is of a kind that no handler takes");
  }

  absl::StatusOr<Attribute> TypedArray(int depth) {
    const std::string_view type = scanner_.Word();
    if (Bits(type) == 0 && type != "i1" && type != "f32" && type != "f64")
      return Malformed("an array has an element type that no handler takes");
    if (scanner_.Take(">")) return Attribute{};
    if (!scanner_.Take(":")) return Malformed("an array has no elements");
    return List(">", depth);
  }

  absl::StatusOr<Attribute> List(std::string_view end, int depth) {
    if (scanner_.Take(end)) return Attribute{};
    do {
      GANGWAY_RETURN_IF_ERROR(Value(depth + 1));
    } while (scanner_.Take(","));
    if (!scanner_.Take(end)) return Malformed("a list has no end");
    return Attribute{};
  }

  absl::StatusOr<Attribute> Numeric(std::string_view number) {
    const bool is_integer = IsInteger(number);
    std::string type = is_integer ? "i64" : "f64";
    if (scanner_.Take(":")) type = std::string(scanner_.Word());
    Attribute value{.kind = Attribute::Kind::kInteger, .type = type};
    if (is_integer && Fits(number, type, value.integer)) return value;
    double parsed = 0;
    if ((type == "f32" || type == "f64") && IsDecimalFloat(number) &&
        absl::SimpleAtod(View(number), &parsed)) {
      value.kind = Attribute::Kind::kFloat;
      return value;
    }
    return Malformed(absl::StrCat(View(number), " is no number of type ", type));
  }

  TextScanner scanner_;
};

}  // namespace

absl::StatusOr<Attributes> ParseAttributes(std::string_view text) {
  if (text.empty()) return Attributes();
  if (text.size() > kAttributesBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(
        "its attributes have ", text.size(), " bytes, over the limit of ", kAttributesBytesMax));
  return Parser(text).Run();
}

}  // namespace gangway::compiler::calls
