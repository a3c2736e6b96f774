// Compiles one request with a device runtime and says what is known of the result. No cache, no
// state.
#ifndef GANGWAY_COMPILER_COMPILE_H_
#define GANGWAY_COMPILER_COMPILE_H_

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// Compiles for logical positions 0..device_count-1, whatever local_devices says: an executable
// loads on any list of as many devices. Blocks as long as the compiler takes. Errors: those of
// Backend::Compile, and FAILED_PRECONDITION where `backend` has fewer devices than the program.
absl::StatusOr<wire::CompileResult> Compile(device::Backend& backend,
                                            const wire::CompileRequest& request);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILE_H_
