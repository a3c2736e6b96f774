// Host callbacks at the plugin's edge: an extension of Gangway's own in the chain of PJRT_Api, by which the framework's
// side (python/gangway/_callbacks.py, through ctypes) gives the function that runs them. One for all clients of the
// process: the numbers of callbacks are the process's own.
//
// Threading: the handler runs on threads of the client library, up to 16 at a time.
#ifndef GANGWAY_FRONTDOOR_PJRT_CALLBACKS_H_
#define GANGWAY_FRONTDOOR_PJRT_CALLBACKS_H_

#include <cstddef>
#include <cstdint>

#include "pjrt_c_api.h"

#include "gangway/client/client.h"

extern "C" {

// Outside the numbers of the API's own extensions.
#define GANGWAY_CALLBACKS_EXTENSION_TYPE 0x47575943

// Valid during the handler.
struct GangwayHostCall;

// Calls AddResult for each result in order, or Fail.
using GangwayHostHandler = void (*)(GangwayHostCall* call, uint64_t function, size_t operand_count,
                                    const void* const* operands, const size_t* operand_bytes);

struct GangwayCallbacksExtension {
  PJRT_Extension_Base base;
  // Null: calls fail from now on. Waits until no call runs the handler before, for `limit_ms`. Returns how many still
  // do; in a forked child, none.
  size_t (*set_handler)(GangwayHostHandler handler, size_t limit_ms);
  void (*add_result)(GangwayHostCall* call, const void* data, size_t bytes);
  void (*fail)(GangwayHostCall* call, const char* text, size_t bytes);
  // The four numbers of Traffic (gangway/connect.h), in their order.
  void (*traffic)(uint64_t* counts);
};
}

namespace gangway::pjrt {

PJRT_Extension_Base* CallbacksExtension();

// Runs the handler.
HostFunctions HostFunctionsOfProcess();

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_CALLBACKS_H_
