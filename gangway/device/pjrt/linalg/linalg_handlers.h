// `jnp.linalg` on the CPU plugin: typed-FFI handlers for the custom calls to LAPACK that JAX emits
// for platform "cpu". The plugin has none of its own: they are part of jaxlib, which a worker does
// not have. The handlers adapt operands and call OpenBLAS; docs/internals/linalg.md describes each
// call.
//
// A handler runs on the thread that executes the program and starts no other. It keeps no state, so
// any number may run at once.
#ifndef GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_
#define GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_

#include "gangway/device/handler_group.h"

namespace gangway::device {

// One handler per target, in no particular order. Empty on a platform other than CPU, for which JAX does not emit these
// calls, and where OpenBLAS does not load, which is logged.
HandlerGroup LinalgHandlers(const Capabilities& capabilities);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_PJRT_LINALG_LINALG_HANDLERS_H_
