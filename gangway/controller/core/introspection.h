// What the controller knows when a tool asks: its status, and whom an operation waits for. Functions over const views
// of the rooms. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_INTROSPECTION_H_
#define GANGWAY_CONTROLLER_CORE_INTROSPECTION_H_

#include <map>

#include "gangway/base/ids.h"
#include "gangway/controller/core/events.h"
#include "gangway/controller/core/executables.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/programs.h"
#include "gangway/controller/core/session.h"
#include "gangway/controller/core/storages.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct ControllerView {
  const std::map<SessionId, Session>& sessions;
  const Fleet& fleet;
  const Isolation& isolation;
  const Outbox& outbox;
  const Storages& storages;
  const Executables& executables;
  const Nodes& nodes;
  const Programs& programs;
};

// All but the devices' bytes, which the schedulers know, and the epoch.
void FillStatus(const ControllerView& view, Time now, wire::StatusReply& reply);

// Adds the waits that are known here, and rewrites `request` for the schedulers: an array becomes the gang that
// produces it. False: the schedulers need not be asked.
bool Explain(const ControllerView& view, wire::WhyRequest& request, Time now,
             wire::WhyReply& reply);

// Completes waits, of which the schedulers know session and gang: says whose client it is, and which node of a launched
// program.
void NameWaits(const ControllerView& view, wire::WhyReply& reply);

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_INTROSPECTION_H_
