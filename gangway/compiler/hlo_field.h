// Reads one field of a serialized proto, whatever else the message has. A pure function on untrusted bytes.
#ifndef GANGWAY_COMPILER_HLO_FIELD_H_
#define GANGWAY_COMPILER_HLO_FIELD_H_

#include <optional>
#include <string>

namespace gangway::compiler {

// The bytes of the first field of this number that has a length. Nothing, if the message is malformed or has none.
std::optional<std::string> FieldOf(const std::string& message, int number);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_HLO_FIELD_H_
