// Sessions of different owners share no worker process and no compiler process, if the cluster is so configured.
//
// An operation that gives a worker work claims it for the session's owner (claims.h), before anything of the operation
// reaches the worker. When the owner's last session ends, the worker's process is replaced. The controller's message
// for that follows all that was sent for the owner: the scheduler is done with the process at that message, so whatever
// comes after it reaches the next process only. The claim is therefore free at once, and the next owner's work waits as
// for a worker that is down.
//
// Pure; not thread-safe. Stands on Fleet and Outbox.
#ifndef GANGWAY_CONTROLLER_CORE_ISOLATION_H_
#define GANGWAY_CONTROLLER_CORE_ISOLATION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gangway/base/device_lists.h"
#include "gangway/base/ids.h"
#include "gangway/controller/core/claims.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/session_info.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Isolation {
 public:
  // `isolates` false: no operation claims anything. Both others outlive this.
  Isolation(bool isolates, const Fleet& fleet, Outbox& outbox)
      : fleet_(fleet), outbox_(outbox), claims_(isolates, fleet.workers().size()) {}

  void Open(const Owner& owner) { claims_.Open(owner); }
  // After all that ends the session was sent. The workers to be replaced, if it was the owner's last one; nullopt: it
  // was not.
  std::optional<std::vector<size_t>> Close(const SessionInfo& session) {
    return claims_.Close(session.id, session.owner);
  }
  // Claims all of the devices' workers, or none of them. Every operation that gives them work does so.
  // UNAVAILABLE, as for a worker that is drained: the same call may succeed later or elsewhere.
  wire::FailureRef Claim(const SessionInfo& session, const DeviceList& devices, Time now);
  // Tells the island's next scheduler, which knows of no session, who may use its workers.
  void AdmitAgain(uint32_t island);

  // Whether an owner other than this has claimed the worker.
  bool IsForeign(size_t worker, const Owner& owner) const {
    return claims_.Foreign(worker, owner) != nullptr;
  }
  // For people: the first session of the claim. Of a worker that is claimed.
  std::string ClaimText(size_t worker) const;
  // The workers that other owners have claimed, and by which session; empty if none.
  std::string ClaimedByOthers(const Owner& owner) const;
  // Whether a worker is being replaced after its owner's last session, which was not before `since`.
  bool AwaitsReplacement(const Owner& owner, Time since) const;
  void FillClaim(size_t worker, Time now, wire::WorkerState& state) const;

 private:
  wire::FailureRef ForeignClaim(const Owner& owner, const DeviceList& devices, Time now) const;

  const Fleet& fleet_;
  Outbox& outbox_;
  Claims claims_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_ISOLATION_H_
