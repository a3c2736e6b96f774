// The calls besides sessions: version negotiation, and host buffers, which have their own streams.
//
// Threading: as in call.h; large buffers are copied on the environment's bulk thread. Failure: each
// call returns its status; fewer bytes than announced, or more in the message that completes them,
// poison their buffer.
#ifndef GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_
#define GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_

#include "gangway/frontdoor/ifrt/call.h"

namespace gangway::ifrt {

// Starts accepting every kind of call but sessions.
void AcceptBufferCalls(CallEnvironment& environment);

}  // namespace gangway::ifrt

#endif  // GANGWAY_FRONTDOOR_IFRT_BUFFER_CALLS_H_
