// One session: what it is, and the arrays that it owns. Its executables, nodes and awaits are kept by their rooms.
// Pure.
#ifndef GANGWAY_CONTROLLER_CORE_SESSION_H_
#define GANGWAY_CONTROLLER_CORE_SESSION_H_

#include "gangway/controller/core/session_arrays.h"
#include "gangway/controller/core/session_info.h"

namespace gangway::controller {

struct Session {
  SessionInfo info;
  SessionArrays arrays;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SESSION_H_
