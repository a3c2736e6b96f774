// Writes JSON values as YAML, for files that people read and edit. What a string holds never changes its type: one that
// YAML could take for a number, a truth value or null is quoted.
//
// Threading: functions without state. Failure: none. Bytes that are not UTF-8 are replaced.
#ifndef GANGWAY_CLI_YAML_TEXT_H_
#define GANGWAY_CLI_YAML_TEXT_H_

#include <string>

#include "gangway/cli/json.h"

namespace gangway::cli {

// One document, without the line that separates documents. Text of several lines becomes a block.
std::string ToYaml(const Json& json);

bool IsUtf8(const std::string& text);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_YAML_TEXT_H_
