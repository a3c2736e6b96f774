// Where the positions of a program run, with the incarnations of its workers that are known now. The first launches
// wait until all of these are known, on their devices' threads.
//
// Threading: any thread.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEERS_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEERS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/collective/execution/member.h"
#include "gangway/worker/service/collective/pending_peer.h"

namespace gangway::worker {

class PendingPeers {
 public:
  struct WorkerDevice {
    uint32_t worker = 0;  // its index in the island
    uint32_t device = 0;  // of that worker
  };
  // `devices`: of each position. `pending_of` is called once for each worker. Null: no member of this worker meets one
  // there.
  PendingPeers(std::span<const WorkerDevice> devices,
               absl::FunctionRef<std::shared_ptr<PendingPeer>(uint32_t worker)> pending_of);

  // The same list for all. The errors of PendingPeer::Wait, INTERNAL for a device that its worker does not have, and
  // what `unwanted` returns, which is called at least once for each worker, and every 50 ms.
  absl::StatusOr<std::shared_ptr<const collective::PeerDevices>> Wait(
      Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted)
      GANGWAY_EXCLUDES(mutex_);

 private:
  struct OfWorker {
    std::shared_ptr<PendingPeer> pending;
    uint32_t last_device = 0;
  };

  std::vector<OfWorker> workers_;
  std::vector<WorkerDevice> positions_;  // `worker`: its index in workers_
  Mutex mutex_;
  std::shared_ptr<const collective::PeerDevices> known_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEERS_H_
