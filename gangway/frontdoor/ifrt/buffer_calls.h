// The calls beside a session: versions, and the host buffers that travel on streams of their own.
//
// Threading: as in call.h; large buffers are copied on the environment's bulk thread. Failure: each
// call's own status; bytes that end early, or are more than was said, spoil their buffer.
#ifndef GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_
#define GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_

#include "gangway/frontdoor/ifrt/call.h"

namespace gangway::ifrt {

// Starts accepting every kind of call but sessions.
void AcceptBufferCalls(CallEnvironment& environment);

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_
