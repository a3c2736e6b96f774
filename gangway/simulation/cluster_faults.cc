// Starts and losses of schedulers, workers, the compiler and sessions, and the plan of faults.
#include <utility>

#include "gangway/simulation/cluster_state.h"
#include "gangway/wire/failure.h"

namespace gangway::simulation {

// A successor knows only what the controller sends it.
void Cluster::StartScheduler(uint32_t index) {
  Island& island = islands_[index];
  ++island.life;
  wire::IslandTerms terms;
  controller_.FillTerms(index, terms);
  for (uint32_t w = 0; w < kWorkersPerIsland; ++w)
    island.config.workers[w].last_incarnation =
        Incarnation(terms.workers(static_cast<int>(w)).incarnation());
  island.core = std::make_unique<scheduler::Island>(island.config, scenario_.bug);
  island.from_controller->Cut();
  StepController(controller::SchedulerUp{index, island.life});
  for (uint32_t w = 0; w < kWorkersPerIsland; ++w) StartWorker(index, w);
}

// Its workers end when they notice the loss, and return with the next scheduler.
void Cluster::LoseScheduler(uint32_t index) {
  Island& island = islands_[index];
  if (island.life % 2 == 0) return;
  ++outcome_.schedulers_lost;
  const uint64_t life = ++island.life;
  island.from_controller->Cut();
  island.to_controller->Cut();
  for (uint32_t w = 0; w < kWorkersPerIsland; ++w) {
    island.to_worker[w]->Cut();
    island.from_worker[w]->Cut();
    timeline_.After(Delay(), [this, index, w, life] {
      SimWorker& worker = *islands_[index].workers[w];
      if (islands_[index].life == life && worker.up()) worker.Die();
    });
  }
  const Duration noticed = Delay();
  timeline_.After(noticed, [this, index] {
    StepController(controller::SchedulerDown{index, "the simulated scheduler was killed"});
  });
  const Duration back =
      noticed + Milliseconds(random_.Percent(80) ? random_.Between(2, 50) : 25000);
  timeline_.After(back, [this, index] { StartScheduler(index); });
}

void Cluster::StartWorker(uint32_t island, uint32_t index) {
  SimWorker& worker = *islands_[island].workers[index];
  if (worker.up() || islands_[island].life % 2 == 0) return;
  uint64_t incarnation = next_incarnation_++;
  islands_[island]
      .to_worker[index]
      ->Cut();  // drops messages to the last incarnation; the new one has its own link
  worker.Start(incarnation);
  scheduler::WorkerUp event;
  event.registration.set_island(island);
  event.registration.set_index(index);
  event.registration.set_incarnation(incarnation);
  event.registration.set_device_count(kDevicesPerWorker);
  event.process_id = 1000 + incarnation;
  timeline_.After(Delay(), [this, island, event, incarnation, &worker] {
    if (worker.incarnation() == incarnation) StepIsland(island, event);
  });
}

void Cluster::LoseWorker(uint32_t island, uint32_t index) {
  SimWorker& worker = *islands_[island].workers[index];
  if (!worker.up()) return;
  ++outcome_.workers_lost;
  uint64_t incarnation = worker.incarnation();
  worker.Die();
  islands_[island].to_worker[index]->Cut();
  islands_[island].from_worker[index]->Cut();
  Duration noticed = Delay();
  timeline_.After(noticed, [this, island, index, incarnation] {
    scheduler::WorkerDown event{
        index, Incarnation(incarnation),
        wire::MakeFailure(absl::StatusCode::kUnavailable, "the simulated worker was killed")};
    StepIsland(island, event);
  });
  // It returns soon, or so late that everything that waits for it has given up.
  Duration back = noticed + Milliseconds(random_.Percent(80) ? random_.Between(1, 50) : 25000);
  timeline_.After(back, [this, island, index] { StartWorker(island, index); });
}

void Cluster::StartCompiler() {
  ++compiler_life_;
  StepController(controller::CompilerUp{compiler_life_});
}

void Cluster::LoseCompiler() {
  ++compiler_life_;
  to_compiler_->Cut();
  from_compiler_->Cut();
  compile_queue_.clear();
  StepController(controller::CompilerDown{});
  timeline_.After(Milliseconds(random_.Percent(80) ? 10 : 40000), [this] { StartCompiler(); });
}

void Cluster::CompileNext() {
  timeline_.After(Milliseconds(random_.Below(4)), [this, life = compiler_life_] {
    if (life != compiler_life_) return;
    wire::CompileResult result;
    result.set_request(compile_queue_.front().request());
    if (!result.mutable_info()->ParseFromString(compile_queue_.front().program())) {
      *result.mutable_failure() =
          wire::MakeFailure(absl::StatusCode::kInvalidArgument, "not a simulated program");
    }
    compile_queue_.pop_front();
    from_compiler_->Send(std::move(result));
    if (!compile_queue_.empty()) CompileNext();
  });
}

void Cluster::LoseSession(uint64_t number) {
  Session& session = sessions_.at(number);
  if (session.client->ended()) return;
  session.client->End();
  session.to_controller->Cut();
  timeline_.After(Delay(),
                  [this, number] { StepController(controller::SessionLost{SessionId(number)}); });
}

void Cluster::PlanFaults() {
  if (!scenario_.faults) return;
  auto when = [this] { return Milliseconds(random_.Below(25)); };
  for (uint64_t i = random_.Below(3); i > 0; --i) {
    auto island = static_cast<uint32_t>(random_.Below(kIslands));
    auto index = static_cast<uint32_t>(random_.Below(kWorkersPerIsland));
    timeline_.After(when(), [this, island, index] { LoseWorker(island, index); });
  }
  if (random_.Percent(25)) {
    auto island = static_cast<uint32_t>(random_.Below(kIslands));
    timeline_.After(when(), [this, island] { LoseScheduler(island); });
  }
  if (random_.Percent(30)) timeline_.After(when(), [this] { LoseCompiler(); });
  if (random_.Percent(30)) {
    uint64_t session = random_.Between(1, kSessions);
    timeline_.After(when(), [this, session] { LoseSession(session); });
  }
}

}  // namespace gangway::simulation
