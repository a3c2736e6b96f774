// What sessions and people are told of the declared processes: which are there, and the names of those that are not.
// Functions over what other rooms keep. Pure.
#ifndef GANGWAY_CONTROLLER_CORE_PRESENCE_H_
#define GANGWAY_CONTROLLER_CORE_PRESENCE_H_

#include <string>

#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/owner.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

struct PresenceView {
  const Fleet& fleet;
  const Isolation& isolation;
  const Outbox& outbox;
};

// What a new session of the owner sees: the workers that are up, except those that an operator drained, that are about
// to leave or that another owner has claimed; and the names of what is absent.
void FillTopology(const PresenceView& view, const Owner& owner, wire::Topology& topology);
// Names of the schedulers and undrained workers that are down or about to leave; empty if none. Not those that an owner
// other than this has claimed.
std::string AbsentWorkers(const PresenceView& view, const Owner& owner);
// Names of the schedulers and of the first 16 workers that are down, drained ones too, and how many more, and the
// compiler; empty if none.
std::string AbsentProcesses(const PresenceView& view, bool compiler_up);

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_PRESENCE_H_
