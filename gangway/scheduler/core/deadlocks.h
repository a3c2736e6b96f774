// Gangs whose positions disagree about the next collective, and so wait for one another: gang_waits.h finds them among
// the waits that workers report, and the workers are asked whether they still wait. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_DEADLOCKS_H_
#define GANGWAY_SCHEDULER_CORE_DEADLOCKS_H_

#include <cstdint>
#include <map>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/fleet.h"
#include "gangway/scheduler/core/gang_waits.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/scheduler/core/outbox.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Deadlocks {
 public:
  Deadlocks(const Fleet& fleet, Outbox& outbox) : fleet_(fleet), outbox_(outbox) {}

  // Members of the gang on the worker have waited for long.
  void NoteWaits(const NodeState& gang, uint32_t worker, wire::GangWaits& report);
  // One of them still waits. Returns why the gang can never go on, once that is known; it names two of the collectives
  // with a device in each.
  wire::FailureRef NoteConfirmed(const NodeState& gang, uint32_t worker,
                                 const wire::WaitConfirmed& confirmed);
  void Forget(Ordinal gang) { waits_.erase(gang); }

 private:
  void Ask(Ordinal gang, const GangWaits::Ring& ring);
  wire::FailureRef Describe(const NodeState& gang, const GangWaits::Ring& ring) const;

  const Fleet& fleet_;
  Outbox& outbox_;
  std::map<Ordinal, GangWaits> waits_;  // of gangs whose members have waited for long
  uint64_t checks_ = 0;                 // so far
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_DEADLOCKS_H_
