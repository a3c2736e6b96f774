// What a session is, apart from what it owns. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_SESSION_INFO_H_
#define GANGWAY_CONTROLLER_CORE_SESSION_INFO_H_

#include <string>

#include "gangway/base/ids.h"
#include "gangway/controller/core/owner.h"

namespace gangway::controller {

struct SessionInfo {
  SessionId id;
  std::string name;  // of its client, for people
  Owner owner;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_SESSION_INFO_H_
