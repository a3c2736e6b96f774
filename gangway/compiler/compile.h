// Compiles one request with a device runtime and describes the result. Has no cache and no state.
#ifndef GANGWAY_COMPILER_COMPILE_H_
#define GANGWAY_COMPILER_COMPILE_H_

#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::compiler {

// Compiles for logical positions 0..device_count-1 and ignores local_devices: an executable loads
// on any list of device_count devices. Blocks until the compiler is done. Errors: those of
// Backend::Compile; INVALID_ARGUMENT if device_count is 0; FAILED_PRECONDITION if `backend` has
// fewer devices than the program needs.
absl::StatusOr<wire::CompileResult> Compile(device::Backend& backend,
                                            const wire::CompileRequest& request);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_COMPILE_H_
