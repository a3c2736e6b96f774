// StableHLO as HLO: what XLA itself makes of a program, before any of its passes has seen it.
//
// The C API has no function that converts. So XLA is asked to compile the program for two positions without a
// partitioner. It converts the program, writes it to a file (written_hlo.h), and refuses it before its first pass.
#ifndef GANGWAY_COMPILER_HLO_CONVERSION_H_
#define GANGWAY_COMPILER_HLO_CONVERSION_H_

#include <string>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// A serialized HloModuleProto of the request's program, whose format is "mlir". `converter`: XLA's CPU runtime with two
// devices or more, whatever platform the program is for. Blocks for as long as XLA parses the program.
//
// Errors: XLA's, if the program cannot be parsed or converted. UNAVAILABLE: XLA could not write it.
absl::StatusOr<std::string> ConvertToHlo(device::Backend& converter,
                                         const wire::CompileRequest& request);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_HLO_CONVERSION_H_
