// The worker's executables: loads and frees them, and gives each gang what it needs to reach its members. Of programs
// with collectives of Gangway's own, it keeps where their positions run, from the first launch on. It keeps no list of
// executables: the core's records hold their slots (worker/core/held.h).
//
// Threading: of the event loop. The device runtime loads and frees executables on a thread of their own, because both
// may take long; `on_loaded` is called there.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_EXECUTABLES_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_EXECUTABLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "gangway/base/executor.h"
#include "gangway/device/device.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/service/collective/collective_peers.h"
#include "gangway/worker/service/collective/pending_peers.h"
#include "gangway/worker/service/launch/executable_slot.h"
#include "gangway/worker/service/launch/gang_collectives.h"

namespace gangway::worker {

class LocalExecutables {
 public:
  struct Options {
    device::Backend* backend = nullptr;  // outlives this
    CollectivePeers* peers = nullptr;    // outlives this
    EventLoop* loader = nullptr;         // others' too, which outlives this; null: one of its own
    std::function<void(ExecutableLoaded)> on_loaded;
  };
  explicit LocalExecutables(Options options);

  // Sets its slot at once; on_loaded follows. A load that fails is a slot whose gangs all fail for the same reason.
  void Load(LoadExecutable& action);
  void Unload(const UnloadExecutable& action);

  // Another worker has started, or has ended (incarnation 0).
  void UpdatePeer(const wire::Worker& worker);

  // Empty for a program without collectives of Gangway's own.
  GangCollectives::Parts CollectivesOf(const PrepareLaunch& launch);

  // Nothing is loaded from now on. Not on the loop.
  void Stop() { loader_->Stop(); }

 private:
  struct LaunchPeers {
    uint64_t version = 0;  // of what the peers know
    std::shared_ptr<PendingPeers> peers;
  };

  device::Backend* const backend_;
  CollectivePeers* const peers_;
  const std::function<void(ExecutableLoaded)> on_loaded_;
  std::unordered_map<ExecutableId, LaunchPeers> peers_of_;  // of programs that were launched
  // Last: its tasks use the other members.
  const std::unique_ptr<EventLoop> own_loader_;
  EventLoop* const loader_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LOCAL_EXECUTABLES_H_
