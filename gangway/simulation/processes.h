// The processes of a cluster in a FiberWorld: the real control plane, separate schedulers, workers, compiler and client
// library, over a simulated network and simulated devices. Each runs as it does in its own process of the system, but
// for its main function. What ends is started again, as a supervisor does; what is silent is killed first.
//
// Threading: created and used on one thread of the world.
#ifndef GANGWAY_SIMULATION_PROCESSES_H_
#define GANGWAY_SIMULATION_PROCESSES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/base/answer.h"
#include "gangway/base/mutex.h"
#include "gangway/client/connect.h"
#include "gangway/simulation/fiber_world.h"
#include "gangway/transport/sim/sim.h"
#include "gangway/wire/put_limits.h"
#include "gangway/worker/service/worker.h"

namespace gangway::simulation {

struct ProcessesOptions {
  std::vector<std::vector<uint32_t>> islands;  // device count of each worker
  std::set<uint32_t> separate_schedulers;      // islands; the others' schedulers are in the head
  uint64_t budget_bytes = 0;                   // per device; 0: no limit
  uint64_t put_cost_max = wire::kPutWorkerCostMax;  // of a worker
  uint64_t staging_bytes = uint64_t{1} << 30;       // of a worker
  std::chrono::milliseconds worker_wait_max{20000}, memory_wait_max{30000};
  bool isolates = false;  // sessions of different owners share no worker and no compiler process
  std::chrono::milliseconds restart_delay{200};
  transport::SimNetworkOptions network;
  // Sees the bytes on a device of a worker after each change.
  std::function<void(const std::string& worker, int device, int64_t bytes)> on_use;
  // A worker ends while a program is stuck in its device's runtime. What it holds stays allocated.
  std::function<void()> on_stuck_end;
};

class Processes {
 public:
  Processes(FiberWorld* world, const ProcessesOptions& options);
  ~Processes();  // ends all; after the clients

  // Starts the head, the schedulers, the compiler and the workers. The errors of ControlPlane::Start.
  absl::Status Start();

  // A client, in the process of its caller. The errors of gangway::Connect.
  absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& name,
                                                  bool reports_ends = false);
  // The network of a process that speaks to the cluster without the client library.
  std::unique_ptr<transport::Transport> Join(const std::string& name) {
    return network_.Join(name);
  }
  static constexpr char kControlAddress[] = "head:1";
  static constexpr char kToken[] = "token";

  // By island and index in it.
  using WorkerKey = std::pair<uint32_t, uint32_t>;
  static std::string WorkerName(WorkerKey worker);
  static std::string SchedulerName(uint32_t island);
  // "head", "compiler", the schedulers, the workers, and the clients that have connected.
  std::vector<std::string> Names() const;
  // How often the role was started so far.
  uint64_t Lives(const std::string& role) const { return roles_.at(role).lives; }

  // The peers of the process see a reset, and its supervisor starts it again. A client is only cut off, for ever.
  // False: it is down already.
  bool Kill(const std::string& name);
  void KillWorker(WorkerKey worker) { Kill(WorkerName(worker)); }
  // As SIGSTOP and SIGCONT do. A process that is killed while it is stopped ends.
  void Stop(const std::string& name);
  void Continue(const std::string& name);

  transport::SimNetwork& network() { return network_; }

 private:
  // One life of a process.
  struct Life {
    std::string name;  // on the network
    uint64_t process = 0;
    worker::StopFlag stop;
  };
  struct Role {
    std::function<void(Life&)> run;
    std::shared_ptr<Life> life GANGWAY_GUARDED_BY(mutex);
    bool ending GANGWAY_GUARDED_BY(mutex) = false;
    Mutex mutex;
    CondVar changed;
    World::ThreadId supervisor = 0;
    uint64_t lives = 0;
  };

  void AddRole(const std::string& name, std::function<void(Life&)> run);
  void Supervise(const std::string& name, Role& role);
  void End(const std::string& name);
  void KillSilent(uint64_t process);
  void RunHead(Life& life);
  void RunScheduler(uint32_t island, Life& life);
  void RunCompiler(Life& life);
  void RunWorker(WorkerKey key, Life& life);
  int FirstDeviceOf(WorkerKey key) const;

  FiberWorld* const world_;
  const ProcessesOptions options_;
  transport::SimNetwork network_;
  Answer<absl::Status> head_started_;
  std::map<std::string, Role> roles_;
  std::map<std::string, uint64_t> clients_;  // their processes
  // Of each client: it must outlive the client.
  std::vector<std::unique_ptr<transport::Transport>> client_networks_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_PROCESSES_H_
