// The attributes of a typed custom call: its backend_config, a dictionary in MLIR's text. The subset that XLA takes for
// its handlers: booleans, integers and floats with their types, strings, arrays, dictionaries inside. All else is
// refused, so what a rule has read is what XLA reads. Pure, on untrusted bytes.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_ATTRIBUTES_H_
#define GANGWAY_COMPILER_CHECK_CALLS_ATTRIBUTES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gangway::compiler::calls {

inline constexpr size_t kAttributesMax = 64;                    // entries of one dictionary
inline constexpr size_t kAttributesBytesMax = size_t{4} << 10;  // of the text
inline constexpr int kAttributesDepthMax = 4;  // dictionaries and arrays inside of one another

struct Attribute {
  enum class Kind { kBool, kInteger, kFloat, kString, kOther };
  Kind kind = Kind::kOther;
  std::string type;     // of an integer or a float: "ui8", "i64", "f32"
  int64_t integer = 0;  // of a boolean: 0 or 1
  std::string text;     // of a string
};

using Attributes = std::map<std::string, Attribute, std::less<>>;

// An empty text has no attributes. INVALID_ARGUMENT, with the reason and no advice: it is malformed, beyond a limit,
// has an integer that its type cannot hold, or names an attribute twice.
absl::StatusOr<Attributes> ParseAttributes(std::string_view text);

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_ATTRIBUTES_H_
