// `jnp.linalg` on the CPU plugin: typed-FFI handlers for the custom calls to LAPACK that JAX emits
// for platform "cpu". The plugin has none of its own (jaxlib has them, and is not in a worker).
// They adapt operands and call OpenBLAS; docs/internals/linalg.md says what each call means.
//
// A handler runs in the thread that executes the program and starts no other. It keeps no state, so
// any number may run at once.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_
#define GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_

#include <vector>

#include "absl/status/status.h"

#include "gangway/device/device.h"

namespace gangway::device {

// One for each target, in no order that matters.
const std::vector<FfiHandler>& LinalgHandlers();

// Errors: those of Backend::RegisterFfiHandlers. UNIMPLEMENTED: another platform than CPU, for
// which JAX does not emit these calls, or a plugin without FFI.
absl::Status RegisterLinalgHandlers(Backend& backend);

// To be called once by each process that compiles or loads programs, before it does so. Without the
// handlers all but programs with such calls works: where they are refused, the log says so.
void OfferLinalg(Backend& backend);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_
