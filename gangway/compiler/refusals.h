// What a script can do about a program that the devices' runtime refuses to compile. The runtime's own text says what
// it lacks, in its own terms; refusals.cc is the one table of what to do instead. Pure functions.
#ifndef GANGWAY_COMPILER_REFUSALS_H_
#define GANGWAY_COMPILER_REFUSALS_H_

#include <string_view>

#include "absl/status/status.h"

namespace gangway::compiler {

// Advice for a refusal with this text; never empty.
std::string_view AdviceOn(std::string_view refusal);

// The error of a compile: its code, that the devices' runtime says so, the runtime's text, and the advice.
absl::Status Explain(const absl::Status& refusal);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_REFUSALS_H_
