// Gangs over several islands, between the real cores of the controller and of the schedulers. The workers are models,
// since no real worker runs its part of such a gang yet: a gang starts when it is first in the queues of all its
// devices, as a collective does, so queues whose orders contradict each other stand still.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gangway/controller/core/controller.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/simulation/checkers.h"
#include "gangway/simulation/random.h"

namespace gangway::simulation {
namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr uint32_t kIslands = 2, kWorkers = 2, kDevices = 2;  // of each
constexpr SessionId kSession{1};

uint32_t IslandOf(uint32_t device) { return device / (kWorkers * kDevices); }
uint32_t WorkerOf(uint32_t device) { return device / kDevices % kWorkers; }

controller::ControllerConfig MakeControllerConfig() {
  controller::ControllerConfig config;
  config.program_reach = controller::Reach::kCluster;
  uint32_t device = 0;
  for (uint32_t island = 0; island < kIslands; ++island) {
    for (uint32_t index = 0; index < kWorkers; ++index) {
      wire::Worker& worker = config.workers.emplace_back();
      worker.set_island(island);
      worker.set_index(index);
      for (uint32_t i = 0; i < kDevices; ++i) worker.add_devices(device++);
    }
  }
  return config;
}

class Cluster {
 public:
  Cluster(uint64_t seed, uint32_t window)
      : random_(seed), controller_(MakeControllerConfig()), order_(&violations_) {
    for (uint32_t island = 0; island < kIslands; ++island) {
      scheduler::IslandConfig config{.island = island, .window = window};
      for (uint32_t index = 0; index < kWorkers; ++index) {
        config.workers.emplace_back();
        for (uint32_t i = 0; i < kDevices; ++i)
          config.workers.back().devices.emplace_back((island * kWorkers + index) * kDevices + i);
      }
      islands_.push_back(std::make_unique<scheduler::Island>(config));
      for (uint32_t index = 0; index < kWorkers; ++index) StartWorker(island, index);
    }
    StepController(controller::CompilerUp{1});
    StepController(controller::SessionOpened{kSession, "session"});
  }

  void Run(int calls) {
    wire::SessionBatch batch;
    for (uint64_t handle = 1; handle <= kPlacements.size(); ++handle) {
      wire::CompileOp* op = batch.add_ops()->mutable_compile();
      op->set_executable(handle);
      op->mutable_devices()->Add(kPlacements[handle - 1].begin(), kPlacements[handle - 1].end());
    }
    StepController(controller::FromClient{kSession, batch});
    while (calls > 0 || AnythingLeft()) {
      if (calls > 0 && random_.Percent(20)) {
        --calls;
        Call();
      } else if (!DeliverOne() && calls == 0) {
        break;
      }
    }
    for (const auto& [ordinal, gang] : gangs_) {
      violations_.Add("progress", absl::StrCat("gang ", ordinal, " stands still"));
    }
    order_.Finish();
  }

  const std::vector<std::string>& violations() const { return violations_.list(); }
  int spanning() const { return spanning_; }

 private:
  using Deliver = std::function<void()>;
  struct Gang {
    std::vector<uint32_t> devices;
    std::set<std::pair<uint32_t, uint32_t>> released;  // island, worker
    bool running = false;
  };
  inline static const std::vector<std::vector<uint32_t>> kPlacements = {
      {0},       {5},   {0, 1}, {2, 3}, {4, 5}, {1, 4}, {4, 1}, {0, 1, 2, 3, 4, 5, 6, 7},
      {3, 2, 7}, {6, 0}};

  void StartWorker(uint32_t island, uint32_t index) {
    scheduler::WorkerUp up;
    up.registration.set_island(island);
    up.registration.set_index(index);
    up.registration.set_incarnation(1);
    up.registration.set_device_count(kDevices);
    StepIsland(island, up);
  }

  void Call() {
    wire::SessionBatch batch;
    wire::CallOp* call = batch.add_ops()->mutable_call();
    call->set_executable(random_.Between(1, kPlacements.size()));
    call->add_results(++next_handle_);
    spanning_ += kPlacements[call->executable() - 1].size() > 1 &&
                 IslandOf(kPlacements[call->executable() - 1].front()) !=
                     IslandOf(kPlacements[call->executable() - 1].back());
    StepController(controller::FromClient{kSession, batch});
  }

  Time Now() { return Time(std::chrono::microseconds(++now_us_)); }

  void StepController(controller::Event event) {
    controller::Actions actions;
    controller_.Step(std::move(event), Now(), actions);
    for (const auto& [compiler, request] : actions.to_compilers) {
      wire::CompileResult result;
      result.set_request(request.request());
      result.mutable_info()->add_results()->set_shard_bytes(8);
      StepController(controller::FromCompiler{result});
    }
    for (auto& [island, item] : actions.to_islands) {
      links_[absl::StrCat("to", island)].emplace_back([this, island = island, item = item] {
        scheduler::FromController event;
        *event.batch.add_items() = item;
        StepIsland(island, std::move(event));
      });
    }
  }

  void StepIsland(uint32_t island, scheduler::Event event) {
    scheduler::Actions actions;
    islands_[island]->Step(std::move(event), Now(), actions);
    for (const wire::Report& report : actions.to_controller) {
      links_[absl::StrCat("from", island)].emplace_back([this, island, report] {
        controller::FromScheduler event{island, {}};
        *event.batch.add_reports() = report;
        StepController(std::move(event));
      });
    }
    for (const auto& [workers, item] : actions.to_workers) {
      for (const uint32_t worker : workers) {
        links_[absl::StrCat("worker", island, ".", worker)].emplace_back(
            [this, island, worker, item = item] { OnItem(island, worker, item); });
      }
    }
  }

  void OnItem(uint32_t island, uint32_t worker, const wire::IslandItem& item) {
    if (item.has_load()) {
      loads_[item.load().executable()] = {item.load().devices().begin(),
                                          item.load().devices().end()};
    } else if (item.has_node() && item.node().has_launch()) {
      gangs_[item.node().ordinal()].devices = loads_[item.node().launch().executable()];
    } else if (item.has_release()) {
      for (uint64_t ordinal : item.release().ordinals()) {
        for (uint32_t device : gangs_.at(ordinal).devices) {
          if (IslandOf(device) != island || WorkerOf(device) != worker) continue;
          queues_[device].push_back(ordinal);
          order_.OnRelease(absl::StrCat("device", device), ordinal);
        }
      }
    }
  }

  // Gangs that are first in the queues of all their devices.
  std::vector<uint64_t> Startable() const {
    std::vector<uint64_t> startable;
    for (const auto& [ordinal, gang] : gangs_) {
      bool first = !gang.devices.empty();
      for (uint32_t device : gang.devices) {
        auto queue = queues_.find(device);
        first = first && queue != queues_.end() && !queue->second.empty() &&
                queue->second.front() == ordinal;
      }
      if (first) startable.push_back(ordinal);
    }
    return startable;
  }

  void RunGang(uint64_t ordinal) {
    std::set<std::pair<uint32_t, uint32_t>> workers;
    for (uint32_t device : gangs_.at(ordinal).devices) {
      queues_[device].pop_front();
      workers.emplace(IslandOf(device), WorkerOf(device));
    }
    gangs_.erase(ordinal);
    for (auto [island, worker] : workers) {
      links_[absl::StrCat("done", island, ".", worker)].emplace_back(
          [this, island = island, worker = worker, ordinal] {
            scheduler::FromWorker event{worker, Incarnation(1), {}};
            event.batch.add_reports()->mutable_done()->set_ordinal(ordinal);
            StepIsland(island, std::move(event));
          });
    }
  }

  bool AnythingLeft() const { return !links_.empty() || !Startable().empty(); }

  bool DeliverOne() {
    const std::vector<uint64_t> startable = Startable();
    const uint64_t choice = random_.Below(links_.size() + startable.size() + 1);
    if (choice < startable.size()) {
      RunGang(startable[choice]);
      return true;
    }
    if (links_.empty()) return !startable.empty();
    auto link = std::next(links_.begin(), static_cast<ptrdiff_t>(random_.Below(links_.size())));
    Deliver deliver = std::move(link->second.front());
    link->second.pop_front();
    if (link->second.empty()) links_.erase(link);
    deliver();
    return true;
  }

  Random random_;
  uint64_t now_us_ = 0, next_handle_ = 0;
  int spanning_ = 0;
  controller::Controller controller_;
  std::vector<std::unique_ptr<scheduler::Island>> islands_;
  std::map<std::string, std::deque<Deliver>>
      links_;  // messages on the way; only those that have any
  std::map<uint64_t, std::vector<uint32_t>> loads_;  // by executable: its devices
  std::map<uint64_t, Gang> gangs_;                   // that have not ended
  std::map<uint32_t, std::deque<uint64_t>> queues_;  // by device
  Violations violations_;
  OrderChecker order_;
};

TEST(SpanningGangsTest, OneOrderAndProgress_GS1) {
  int spanning = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const uint32_t window = seed % 3 == 0 ? 1 : 16;
    Cluster cluster(seed, window);
    cluster.Run(60);
    spanning += cluster.spanning();
    for (const std::string& violation : cluster.violations())
      ADD_FAILURE() << "seed " << seed << ", window " << window << ": " << violation;
    if (HasFailure()) return;
  }
  EXPECT_GT(spanning, 1000);
}

}  // namespace
}  // namespace gangway::simulation
