// A compile that a session waits for.
#ifndef GANGWAY_CONTROLLER_CORE_PENDING_COMPILE_H_
#define GANGWAY_CONTROLLER_CORE_PENDING_COMPILE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "gangway/base/ids.h"
#include "gangway/controller/core/owner.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct PendingCompile {
  SessionId session;
  Owner owner;  // of the session
  ExecutableHandle handle{};
  std::string platform;  // of the devices: "cpu", "cuda", ...
  wire::CompileRequest request;
  std::chrono::steady_clock::time_point since;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_PENDING_COMPILE_H_
