// The typed-FFI handlers of ours, in groups by the programs that need them, which a process offers its device runtime.
#ifndef GANGWAY_DEVICE_HANDLER_GROUP_H_
#define GANGWAY_DEVICE_HANDLER_GROUP_H_

#include <span>
#include <string>
#include <vector>

#include "gangway/device/device.h"

namespace gangway::device {

struct HandlerGroup {
  std::string programs;  // that need the handlers, for the log: "with host callbacks"
  std::vector<FfiHandler> handlers;
};

// Registers the handlers that the runtime can have (Capabilities). Each process that compiles or loads programs calls
// this once, before it does so. A group that the runtime rejects is logged, and the process then rejects those programs
// alone.
//
// All are registered at once, because each registration compiles a probe, whose cost does not depend on their number.
void OfferHandlers(Backend& backend, std::span<const HandlerGroup> groups);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_HANDLER_GROUP_H_
