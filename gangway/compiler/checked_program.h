// The check (check/check.h) of what a request asks to compile, in each format that a client can send.
#ifndef GANGWAY_COMPILER_CHECKED_PROGRAM_H_
#define GANGWAY_COMPILER_CHECKED_PROGRAM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// A program as HLO, a serialized HloModuleProto, that XLA may compile: StableHLO is converted, by XLA itself, and what
// comes out is checked. Sorts whose comparators nothing is known of became sorts that no comparator can lead astray.
// `request`: of its fields, the program, the format and the options count. `converter`: as of ConvertToHlo
// (hlo_conversion.h). `settings`: their number of partitions is the request's. Errors: those of CheckProgram and
// ConvertToHlo; UNIMPLEMENTED for a format that clients do not send.
absl::StatusOr<std::string> CheckedHlo(device::Backend& converter,
                                       const wire::CompileRequest& request,
                                       const CallSettings& settings);

// Replaces the request's program by its CheckedHlo, so that XLA converts it once and compiles what was checked. It
// stays StableHLO if that says what HLO has no place for: the layouts or memories of parameters and results, or that
// their elements of less than a byte are packed. The conversion depends on nothing else that the request says.
absl::Status CheckRequest(device::Backend& converter, wire::CompileRequest& request,
                          const CallSettings& settings);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECKED_PROGRAM_H_
