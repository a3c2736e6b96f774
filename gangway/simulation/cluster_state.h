// The parts of the simulated cluster that cluster.h runs. cluster.cc wires, steps and checks them;
// cluster_faults.cc starts and loses them.
#ifndef GANGWAY_SIMULATION_CLUSTER_STATE_H_
#define GANGWAY_SIMULATION_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/controller/core/controller.h"
#include "gangway/simulation/checkers.h"
#include "gangway/simulation/cluster.h"
#include "gangway/simulation/meeting.h"
#include "gangway/simulation/sim_client.h"
#include "gangway/simulation/sim_worker.h"
#include "gangway/simulation/timeline.h"

namespace gangway::simulation {

inline constexpr uint32_t kIslands = 2;
inline constexpr uint32_t kWorkersPerIsland = 2;
inline constexpr uint32_t kDevicesPerWorker = 2;
inline constexpr uint64_t kSessions = 3;

inline uint32_t IslandOf(uint32_t device) {
  return device / (kWorkersPerIsland * kDevicesPerWorker);
}
inline uint32_t WorkerOf(uint32_t device) { return device / kDevicesPerWorker % kWorkersPerIsland; }

class Cluster {
 public:
  explicit Cluster(const Scenario& scenario);
  Outcome Run();

 private:
  struct Island {
    std::unique_ptr<scheduler::Island> core;
    scheduler::IslandConfig config;
    uint64_t life = 0;  // of its scheduler; odd: up
    std::unique_ptr<Stream<wire::IslandBatch>> from_controller;
    std::unique_ptr<Stream<wire::ReportBatch>> to_controller;
    std::vector<std::unique_ptr<SimWorker>> workers;
    std::vector<std::unique_ptr<Stream<wire::IslandBatch>>> to_worker;
    std::vector<std::unique_ptr<Stream<wire::Report>>> from_worker;
    std::optional<Time> armed;
  };
  struct Session {
    std::unique_ptr<SimClient> client;
    std::unique_ptr<Stream<wire::SessionBatch>> to_controller;
    std::unique_ptr<Stream<wire::SessionEvents>> from_controller;
  };

  controller::ControllerConfig MakeControllerConfig() const;
  void AddIsland(uint32_t index);
  SimWorker::World MakeWorkerWorld(uint32_t island, uint32_t index);
  void AddSession(uint64_t session);
  Duration Delay() { return Microseconds(random_.Between(10, 400)); }

  void StepController(controller::Event event);
  void StepIsland(uint32_t island, scheduler::Event event);
  void Observe(uint32_t island, const scheduler::Actions& actions);
  void SendShard(uint64_t session, uint64_t upload, uint32_t shard, uint32_t device, uint64_t value,
                 uint64_t incarnation);
  void Offer(uint32_t device, uint64_t ordinal, uint32_t shard, const Content& content,
             uint64_t incarnation, std::function<void()> taken);
  SimWorker& WorkerOfDevice(uint32_t device) {
    return *islands_[IslandOf(device)].workers[WorkerOf(device)];
  }

  void StartScheduler(uint32_t island);
  void LoseScheduler(uint32_t island);
  void StartWorker(uint32_t island, uint32_t index);
  void LoseWorker(uint32_t island, uint32_t index);
  void StartCompiler();
  void LoseCompiler();
  void CompileNext();
  void LoseSession(uint64_t session);
  void PlanFaults();

  bool RunUntilRest();
  void CheckAtRest(bool all_over);
  void CheckModel();

  const Scenario scenario_;
  Timeline timeline_;
  Random random_;
  Violations violations_;
  OrderChecker order_{&violations_};
  ReleaseChecker releases_;
  ReferenceChecker references_{&violations_};
  CountChecker counts_{&violations_};
  ResultChecker results_{&violations_};
  AnswerChecker answers_{&violations_};
  MemoryChecker memory_;
  Meeting meeting_;
  controller::Controller controller_;
  std::optional<Time> controller_armed_;
  std::vector<Island> islands_;
  std::map<uint64_t, Session> sessions_;
  std::unique_ptr<Stream<wire::CompileRequest>> to_compiler_;
  std::unique_ptr<Stream<wire::CompileResult>> from_compiler_;
  std::deque<wire::CompileRequest> compile_queue_;
  uint64_t compiler_life_ = 0;  // odd: up
  uint64_t next_incarnation_ = 1;
  Outcome outcome_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_CLUSTER_STATE_H_
