// Wiring, steps of the cores, and the checks at rest.
#include "gangway/simulation/cluster.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/simulation/cluster_state.h"

namespace gangway::simulation {
namespace {

constexpr uint64_t kEventsMax = 400000;  // far more than any run needs
constexpr Duration kPhaseMax = std::chrono::minutes(20);

std::map<uint32_t, uint32_t> IslandsOfDevices() {
  std::map<uint32_t, uint32_t> islands;
  for (uint32_t d = 0; d < kIslands * kWorkersPerIsland * kDevicesPerWorker; ++d)
    islands[d] = IslandOf(d);
  return islands;
}

}  // namespace

Cluster::Cluster(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed),
      releases_(&violations_, IslandsOfDevices()),
      memory_(&violations_, scenario.budget_bytes),
      controller_(MakeControllerConfig()),
      islands_(kIslands) {
  for (uint32_t island = 0; island < kIslands; ++island) AddIsland(island);
  to_compiler_ = std::make_unique<Stream<wire::CompileRequest>>(
      &timeline_, &random_, Delay(), [this](wire::CompileRequest request) {
        compile_queue_.push_back(std::move(request));
        if (compile_queue_.size() == 1) CompileNext();
      });
  from_compiler_ = std::make_unique<Stream<wire::CompileResult>>(
      &timeline_, &random_, Delay(), [this](wire::CompileResult result) {
        StepController(controller::FromCompiler{std::move(result)});
      });
  StartCompiler();
  for (uint32_t island = 0; island < kIslands; ++island) StartScheduler(island);
  for (uint64_t session = 1; session <= kSessions; ++session) AddSession(session);
}

controller::ControllerConfig Cluster::MakeControllerConfig() const {
  controller::ControllerConfig config;
  config.epoch = 1;
  config.program_reach = controller::Reach::kCluster;
  for (uint32_t island = 0; island < kIslands; ++island) {
    config.remote_islands.insert(island);
    for (uint32_t index = 0; index < kWorkersPerIsland; ++index) {
      wire::Worker worker;
      worker.set_island(island);
      worker.set_index(index);
      for (uint32_t i = 0; i < kDevicesPerWorker; ++i) {
        worker.add_devices((island * kWorkersPerIsland + index) * kDevicesPerWorker + i);
      }
      config.workers.push_back(std::move(worker));
    }
  }
  return config;
}

void Cluster::AddIsland(uint32_t index) {
  Island& island = islands_[index];
  scheduler::IslandConfig& config = island.config;
  config.island = index;
  config.window = scenario_.window;
  config.budget_bytes = scenario_.budget_bytes;
  config.memory_wait_max = std::chrono::milliseconds(3000);
  config.upload_wait_max = std::chrono::milliseconds(2000);
  for (uint32_t w = 0; w < kWorkersPerIsland; ++w) {
    std::vector<uint32_t> devices;
    for (uint32_t i = 0; i < kDevicesPerWorker; ++i) {
      devices.push_back((index * kWorkersPerIsland + w) * kDevicesPerWorker + i);
    }
    config.workers.push_back({.devices = {devices.begin(), devices.end()}, .last_incarnation = {}});
    island.workers.push_back(std::make_unique<SimWorker>(WorkerKey(index, w), std::move(devices),
                                                         MakeWorkerWorld(index, w)));
    island.to_worker.push_back(std::make_unique<Stream<wire::IslandBatch>>(
        &timeline_, &random_, Delay(), [this, index, w](const wire::IslandBatch& batch) {
          SimWorker& worker = *islands_[index].workers[w];
          if (worker.up()) worker.OnBatch(batch);
        }));
    island.from_worker.push_back(std::make_unique<Stream<wire::Report>>(
        &timeline_, &random_, Delay(), [this, index, w](wire::Report report) {
          scheduler::FromWorker event{
              w, Incarnation(islands_[index].workers[w]->incarnation()), {}};
          *event.batch.add_reports() = std::move(report);
          StepIsland(index, std::move(event));
        }));
  }
  island.from_controller = std::make_unique<Stream<wire::IslandBatch>>(
      &timeline_, &random_, Delay(), [this, index](wire::IslandBatch batch) {
        StepIsland(index, scheduler::FromController{std::move(batch)});
      });
  island.to_controller = std::make_unique<Stream<wire::ReportBatch>>(
      &timeline_, &random_, Delay(), [this, index](wire::ReportBatch batch) {
        StepController(controller::FromScheduler{index, std::move(batch)});
      });
}

SimWorker::World Cluster::MakeWorkerWorld(uint32_t island, uint32_t index) {
  SimWorker::World world;
  world.timeline = &timeline_;
  world.random = &random_;
  world.order = &order_;
  world.references = &references_;
  world.memory = &memory_;
  world.meeting = &meeting_;
  world.failing_percent = scenario_.faults ? 2 : 0;
  world.report = [this, island, index](wire::Report report) {
    islands_[island].from_worker[index]->Send(std::move(report));
  };
  world.send_fetched = [this](uint64_t session, uint64_t fetch, uint32_t shard,
                              const Content& content) {
    timeline_.After(Delay(), [this, session, fetch, shard, content] {
      sessions_.at(session).client->OnFetched(fetch, shard, content);
    });
  };
  world.offer = [this](uint32_t device, uint64_t ordinal, uint32_t shard, const Content& content,
                       uint64_t incarnation, std::function<void()> taken) {
    Offer(device, ordinal, shard, content, incarnation, std::move(taken));
  };
  return world;
}

void Cluster::AddSession(uint64_t number) {
  Session& session = sessions_[number];
  ClientConfig config;
  config.session = number;
  config.withheld_percent = scenario_.faults ? 1 : 0;
  config.certain = !scenario_.faults && scenario_.budget_bytes == 0;
  config.live_arrays_max = scenario_.budget_bytes == 0 ? 24 : 8;
  for (const auto& [device, island] : IslandsOfDevices())
    config.worker_of[device] = {island, WorkerOf(device)};
  for (uint32_t island = 0; island < kIslands; ++island) {
    uint32_t d = island * kWorkersPerIsland * kDevicesPerWorker;
    config.placements.push_back(
        {{d}, {d + 3}, {d, d + 1}, {d + 2, d + 3}, {d + 1, d + 2}, {d, d + 1, d + 2, d + 3}});
  }
  config.placements.push_back({{0, 4}, {5, 1}, {3, 7}, {2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7}});
  SimClient::World world;
  world.timeline = &timeline_;
  world.random = &random_;
  world.results = &results_;
  world.answers = &answers_;
  world.send = [this, number](wire::SessionBatch batch) {
    sessions_.at(number).to_controller->Send(std::move(batch));
  };
  world.send_shard = [this, number](uint64_t upload, uint32_t shard, uint32_t device,
                                    uint64_t value, uint64_t incarnation) {
    SendShard(number, upload, shard, device, value, incarnation);
  };
  session.client = std::make_unique<SimClient>(std::move(config), std::move(world));
  session.to_controller = std::make_unique<Stream<wire::SessionBatch>>(
      &timeline_, &random_, Delay(), [this, number](wire::SessionBatch batch) {
        StepController(controller::FromClient{SessionId(number), std::move(batch)});
      });
  session.from_controller = std::make_unique<Stream<wire::SessionEvents>>(
      &timeline_, &random_, Delay(), [this, number](const wire::SessionEvents& events) {
        sessions_.at(number).client->OnEvents(events);
      });
  StepController(
      controller::SessionOpened{SessionId(number), absl::StrCat("simulated session ", number)});
}

// --- Steps of the cores ---

void Cluster::StepController(controller::Event event) {
  controller::Actions actions;
  controller_.Step(std::move(event), timeline_.now(), actions);
  std::map<SessionId, wire::SessionEvents> events;
  for (auto& [session, out] : actions.to_clients) *events[session].add_events() = std::move(out);
  for (auto& [session, batch] : events)
    sessions_.at(session.number()).from_controller->Send(std::move(batch));
  std::vector<wire::IslandBatch> batches(kIslands);
  for (auto& [island, item] : actions.to_islands) {
    if (item.has_load()) releases_.OnLoad(item.load());
    if (item.has_release() && island == 0) ++outcome_.spanning;
    if (item.has_node()) releases_.OnSent(item.node());
    *batches[island].add_items() = std::move(item);
  }
  for (uint32_t island = 0; island < kIslands; ++island) {
    if (!batches[island].items().empty())
      islands_[island].from_controller->Send(std::move(batches[island]));
  }
  for (wire::CompileRequest& request : actions.to_compiler) to_compiler_->Send(std::move(request));
  std::optional<Time> next = controller_.next_deadline();
  if (!next || (controller_armed_ && *controller_armed_ <= *next)) return;
  controller_armed_ = next;
  timeline_.At(*next, [this] {
    controller_armed_.reset();
    StepController(controller::Tick{});
  });
}

void Cluster::StepIsland(uint32_t index, scheduler::Event event) {
  Island& island = islands_[index];
  if (island.life % 2 == 0) return;  // sent to a lost scheduler before its loss was noticed
  scheduler::Actions actions;
  island.core->Step(std::move(event), timeline_.now(), actions);
  Observe(index, actions);
  std::vector<wire::IslandBatch> batches(kWorkersPerIsland);
  for (auto& [worker, item] : actions.to_workers) *batches[worker].add_items() = std::move(item);
  for (uint32_t worker = 0; worker < kWorkersPerIsland; ++worker) {
    if (!batches[worker].items().empty())
      island.to_worker[worker]->Send(std::move(batches[worker]));
  }
  wire::ReportBatch reports;
  for (wire::Report& report : actions.to_controller) *reports.add_reports() = std::move(report);
  if (!reports.reports().empty()) island.to_controller->Send(std::move(reports));
  std::optional<Time> next = island.core->next_deadline();
  if (!next || (island.armed && *island.armed <= *next)) return;
  island.armed = next;
  timeline_.At(*next, [this, index] {
    islands_[index].armed.reset();
    StepIsland(index, scheduler::Tick{});
  });
}

void Cluster::Observe(uint32_t island, const scheduler::Actions& actions) {
  for (const wire::Report& report : actions.to_controller) {
    if (report.has_done()) releases_.OnEnded(island, report.done().ordinal());
  }
  std::set<uint64_t> released;
  for (const auto& [worker, item] : actions.to_workers) {
    for (uint64_t ordinal : item.release().ordinals()) {
      released.insert(ordinal);
      outcome_.fingerprint =
          Mix(outcome_.fingerprint ^ ordinal ^ (uint64_t{worker} << 32) ^ (uint64_t{island} << 48));
    }
  }
  releases_.OnReleased(island, released);
  const scheduler::Ledger& ledger = islands_[island].core->ledger();
  for (uint32_t i = 0; i < kWorkersPerIsland * kDevicesPerWorker; ++i) {
    memory_.OnUse("the scheduler's ledger", island * kWorkersPerIsland * kDevicesPerWorker + i,
                  static_cast<int64_t>(ledger.used_bytes(IslandDevice(i))));
  }
}

// --- Bulk data ---

void Cluster::SendShard(uint64_t session, uint64_t upload, uint32_t shard, uint32_t device,
                        uint64_t value, uint64_t incarnation) {
  timeline_.After(Delay(), [=, this] {
    SimWorker& worker = WorkerOfDevice(device);
    if (worker.incarnation() == incarnation) worker.Stage(session, upload, shard, value);
  });
}

void Cluster::Offer(uint32_t device, uint64_t ordinal, uint32_t shard, const Content& content,
                    uint64_t incarnation, std::function<void()> taken) {
  timeline_.After(Delay(), [this, device, ordinal, shard, content, incarnation,
                            taken = std::move(taken)]() mutable {
    SimWorker& worker = WorkerOfDevice(device);
    if (worker.up() && worker.TakeOffer(ordinal, shard, content, incarnation))
      timeline_.After(Delay(), std::move(taken));
  });
}

// --- Rest ---

bool Cluster::RunUntilRest() {
  Time end = timeline_.now() + kPhaseMax;
  while (timeline_.RunNext()) {
    if (!violations_.list().empty()) return false;
    if (timeline_.now() < end && timeline_.event_count() < kEventsMax) continue;
    violations_.Add(
        "progress",
        absl::StrCat("not at rest after ", timeline_.event_count(),
                     " events; pending nodes: controller ", controller_.node_count(), ", islands ",
                     islands_[0].core->node_count(), " and ", islands_[1].core->node_count()));
    return false;
  }
  return true;
}

// At rest no message is in flight: every question is answered, every node has ended, and exactly
// the storages of live handles are held.
void Cluster::CheckAtRest(bool all_over) {
  answers_.Drained();
  std::set<uint64_t> live;
  for (const auto& [number, session] : sessions_) {
    if (!session.client->ended()) live.insert(number);
  }
  counts_.Expect("progress", "nodes that have not ended in the controller", 0,
                 controller_.node_count());
  for (Island& island : islands_) {
    counts_.Expect("progress", "nodes that have not ended in a scheduler", 0,
                   island.core->node_count());
    if (all_over)
      counts_.Expect("OB-1", "storages in a scheduler", 0, island.core->storage_count());
    for (uint32_t i = 0; all_over && i < kWorkersPerIsland * kDevicesPerWorker; ++i) {
      counts_.Expect("GS-2", "bytes in the scheduler's ledger", 0,
                     island.core->ledger().used_bytes(IslandDevice(i)));
    }
    for (const auto& worker : island.workers) {
      counts_.Expect("progress", "nodes that have not ended on a worker", 0, worker->node_count());
      counts_.OnHeld(worker->key(), worker->HeldStorages(), live);
      if (!all_over) continue;
      counts_.Expect("OB-2", "executables on a worker", 0, worker->executable_count());
      counts_.Expect("OB-2", "uploads staged on a worker", 0, worker->staged_count());
      counts_.Expect("OB-1", "bytes on a worker", 0, static_cast<uint64_t>(worker->used_bytes()));
    }
  }
  if (all_over)
    counts_.Expect("OB-1", "storages in the controller", 0, controller_.storage_count());
  counts_.Expect("progress", "gangs with the sequencer", 0, controller_.spanning_count());
  counts_.Expect("progress", "gangs that wait for a member", 0, meeting_.waiting_count());
  if (!scenario_.faults && scenario_.budget_bytes == 0) CheckModel();
}

// Without faults and without a budget, the model knows exactly which storages are held.
void Cluster::CheckModel() {
  uint64_t in_controller = 0;
  std::vector<uint64_t> in_scheduler(kIslands, 0);
  std::map<WorkerKey, uint64_t> on_worker;
  for (const auto& [number, session] : sessions_) {
    if (session.client->ended()) continue;
    for (const auto& [id, storage] : session.client->storages()) {
      ++in_controller;
      if (storage.consumed) continue;
      std::set<WorkerKey> places;
      for (uint32_t device : storage.devices) places.emplace(IslandOf(device), WorkerOf(device));
      std::set<uint32_t> place_islands;
      for (WorkerKey place : places) {
        ++on_worker[place];
        place_islands.insert(place.first);
      }
      for (uint32_t island : place_islands) ++in_scheduler[island];
    }
  }
  counts_.Expect("OB-1", "storages in the controller", in_controller, controller_.storage_count());
  for (uint32_t i = 0; i < kIslands; ++i) {
    counts_.Expect("OB-1", absl::StrCat("storages in the scheduler of island ", i), in_scheduler[i],
                   islands_[i].core->storage_count());
    for (const auto& worker : islands_[i].workers) {
      counts_.Expect("OB-1", absl::StrCat("storages on island", i, "/worker", worker->key().second),
                     on_worker[worker->key()], worker->HeldStorages().size());
    }
  }
}

Outcome Cluster::Run() {
  bool rested = true;
  for (int phase = 0; phase < scenario_.phases && rested; ++phase) {
    for (auto& [number, session] : sessions_) {
      if (!session.client->ended()) session.client->StartPhase(scenario_.ops_per_phase);
    }
    PlanFaults();
    rested = RunUntilRest();
    if (rested) CheckAtRest(/*all_over=*/false);
    rested = rested && violations_.list().empty();
  }
  for (auto& [number, session] : sessions_) {
    if (rested) LoseSession(number);
  }
  if (rested && RunUntilRest()) CheckAtRest(/*all_over=*/true);
  order_.Finish();
  for (auto& [number, session] : sessions_) {
    results_.Finish(number, session.client->program(), session.client->arguments(),
                    EvaluateSimulated);
  }
  outcome_.violations = violations_.list();
  outcome_.events = timeline_.event_count();
  outcome_.releases = releases_.released_count();
  outcome_.shards_compared = results_.compared_count();
  outcome_.answers = answers_.answered_count();
  outcome_.late_uploads = answers_.late_upload_count();
  outcome_.failures = answers_.failures_by_code();
  return std::move(outcome_);
}

Scenario Scenario::FromSeed(uint64_t seed) {
  Random random(seed ^ 0x5eed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faults = random.Percent(40);
  if (random.Percent(30)) scenario.budget_bytes = random.Between(8, 24) * 8;
  if (random.Percent(33)) scenario.window = static_cast<uint32_t>(random.Between(1, 3));
  return scenario;
}

Outcome RunScenario(const Scenario& scenario) { return Cluster(scenario).Run(); }

}  // namespace gangway::simulation
