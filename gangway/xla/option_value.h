// Values of compile options as texts, so that one value has one spelling whichever way a client sends it: as a field of
// DebugOptions or by its name. Numbers are decimal, booleans 0 and 1, elements of a list separated by commas. Pure
// functions.
#ifndef GANGWAY_XLA_OPTION_VALUE_H_
#define GANGWAY_XLA_OPTION_VALUE_H_

#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/xla/option_table.h"

namespace gangway::xla {

// The option with this number, or of this name; null: there is none.
const CompileOption* FindOption(int number);
const CompileOption* FindOption(std::string_view name);

// The value of the option's field, which `fields` has. Of several, protobuf's rule decides: the last one, or all of a
// list. INVALID_ARGUMENT: it is not encoded as the option's kind.
absl::StatusOr<std::string> ReadValue(const CompileOption& option,
                                      const google::protobuf::UnknownFieldSet& fields);

// The same, from the serialized OptionOverrideProto of an option that is set by its name. INVALID_ARGUMENT: it does not
// say a value of the option's kind.
absl::StatusOr<std::string> ReadOverride(const CompileOption& option,
                                         const std::string& serialized);

// The inverse of ReadValue, for a text that it returned.
void WriteValue(const CompileOption& option, const std::string& value,
                google::protobuf::UnknownFieldSet& fields);

// The text by which XLA takes the value of an option that is set by its name.
std::string NamedValue(const CompileOption& option, const std::string& value);

// Whether `list`, separated by '|', has the value.
bool Lists(std::string_view list, std::string_view value);

// Whether the value is within the option's range, or made of its texts.
bool IsInRange(const CompileOption& option, const std::string& value);

// Whether the value is that of a field which is not set.
bool IsZero(std::string_view value);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_OPTION_VALUE_H_
