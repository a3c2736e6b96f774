// The processes of a cluster in a FiberWorld: the real control plane, workers, compiler and client library, over a
// simulated network and simulated devices. Each runs as it does in its own process of the system, but for its main
// function. What ends is started again, as a supervisor does.
//
// Threading: created and used on one thread of the world.
#ifndef GANGWAY_SIMULATION_PROCESSES_H_
#define GANGWAY_SIMULATION_PROCESSES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/mutex.h"
#include "gangway/base/thread.h"
#include "gangway/cli/control_plane.h"
#include "gangway/client/connect.h"
#include "gangway/simulation/fiber_world.h"
#include "gangway/transport/sim/sim.h"
#include "gangway/worker/service/worker.h"

namespace gangway::simulation {

struct ProcessesOptions {
  std::vector<std::vector<uint32_t>> islands;  // device count of each worker
  uint64_t budget_bytes = 0;                   // per device; 0: no limit
  std::chrono::milliseconds restart_delay{200};
  transport::SimNetworkOptions network;
};

class Processes {
 public:
  Processes(FiberWorld* world, const ProcessesOptions& options);
  ~Processes();  // ends all; after the clients

  // Starts the head, the compiler and the workers. The errors of ControlPlane::Start.
  absl::Status Start();

  // A client in a process of its own. The errors of gangway::Connect.
  absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& name);

  // By island and index in it.
  using WorkerKey = std::pair<uint32_t, uint32_t>;
  // Its peers see a reset; its supervisor starts it again.
  void KillWorker(WorkerKey worker);

  transport::SimNetwork& network() { return network_; }

 private:
  // One life of a worker.
  struct Life {
    std::string name;  // on the network
    worker::StopFlag stop;
  };
  struct Worker {
    std::shared_ptr<Life> life GANGWAY_GUARDED_BY(mutex);
    bool ending GANGWAY_GUARDED_BY(mutex) = false;
    Mutex mutex;
    CondVar changed;
    World::ThreadId supervisor = 0;
    uint64_t lives = 0;
  };

  void Supervise(WorkerKey key, Worker& worker);
  void RunLife(WorkerKey key, Life& life);

  FiberWorld* const world_;
  const ProcessesOptions options_;
  transport::SimNetwork network_;
  std::unique_ptr<transport::Transport> head_network_;
  std::unique_ptr<transport::Transport> head_local_;
  std::unique_ptr<cli::ControlPlane> plane_;
  std::map<WorkerKey, Worker> workers_;
  std::stop_source stop_compiler_;
  World::ThreadId compiler_ = 0;
  // Of each client: it must outlive the client.
  std::vector<std::unique_ptr<transport::Transport>> client_networks_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_PROCESSES_H_
