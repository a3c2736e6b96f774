// What XLA writes to files while it compiles: programs between its passes, which no other way shows. Thread-safe.
#ifndef GANGWAY_COMPILER_WRITTEN_HLO_H_
#define GANGWAY_COMPILER_WRITTEN_HLO_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::compiler {

// Calls `compile` with `options` and those that make XLA write the program before and after the passes that match
// `passes` ("": only before and after all of them), into a folder in $TMPDIR that only this user may read and that is
// gone afterwards. Returns the serialized xla.HloProto of the file whose name ends with `end`, also if the compile
// fails after that was written; else the compile's error, or UNAVAILABLE if nothing can be written there.
absl::StatusOr<std::string> WrittenHlo(
    const std::string& options, std::string_view passes, std::string_view end,
    absl::FunctionRef<absl::Status(const std::string& options)> compile);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_WRITTEN_HLO_H_
