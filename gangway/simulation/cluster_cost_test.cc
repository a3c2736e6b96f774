// What one gang costs all cores of a cluster, counted as in message_cost_test.cc: in proportion to its devices.
#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "gangway/controller/core/controller.h"
#include "gangway/scheduler/core/island.h"
#include "gangway/simulation/counted_work.h"
#include "gangway/worker/core/worker_core.h"

namespace gangway::simulation {
namespace {

using Time = std::chrono::steady_clock::time_point;

// The cores of a cluster: one island of workers with four devices each. Every message between them is passed on, and
// what workers do on devices has happened at once.
class Cluster {
 public:
  explicit Cluster(size_t workers)
      : device_count_(4 * workers), controller_(ControllerOf(workers)), island_(IslandOf(workers)) {
    for (uint32_t index = 0; index < workers; ++index) {
      workers_.emplace_back(worker::Identity{"worker", Incarnation(index + 1), 4});
      scheduler::WorkerUp up;
      up.registration.set_index(index);
      up.registration.set_incarnation(index + 1);
      Step(std::move(up));
    }
    Step(controller::CompilerUp{1});
    Step(controller::SessionOpened{SessionId(1), "one"});
  }

  // Executable `handle`, over all devices, which takes no array or one, which it consumes, and makes one.
  void Compile(uint64_t handle, bool takes_one) {
    wire::SessionBatch batch;
    wire::CompileOp* op = batch.add_ops()->mutable_compile();
    op->set_executable(handle);
    for (size_t i = 0; i < device_count_; ++i) op->add_devices(static_cast<uint32_t>(i));
    Step(controller::FromClient{SessionId(1), std::move(batch)});
    controller::FromCompiler compiled;
    compiled.result.set_request(handle);
    compiled.result.mutable_positions()->set_partitions(static_cast<uint32_t>(device_count_));
    wire::ExecutableInfo* info = compiled.result.mutable_info();
    if (takes_one) Tensor(info->add_parameters());
    if (takes_one) info->add_donated(0);
    Tensor(info->add_results());
    Step(std::move(compiled));
  }
  // Makes `result`, of `argument` if that is not 0.
  void Call(uint64_t executable, uint64_t argument, uint64_t result) {
    wire::SessionBatch batch;
    wire::CallOp* op = batch.add_ops()->mutable_call();
    op->set_executable(executable);
    if (argument != 0) op->add_arguments(argument);
    op->add_results(result);
    if (argument != 0) batch.add_ops()->mutable_drop()->add_handles(argument);
    Step(controller::FromClient{SessionId(1), std::move(batch)});
  }

  size_t launches = 0;  // on workers, so far
  size_t nodes() const { return island_.node_count(); }

 private:
  static void Tensor(wire::TensorSpec* spec) {
    spec->set_element_type(11);
    spec->add_shard_dims(2);
    spec->set_shard_bytes(8);
  }
  static controller::ControllerConfig ControllerOf(size_t workers) {
    controller::ControllerConfig config;
    for (size_t index = 0; index < workers; ++index) {
      wire::Worker worker;
      worker.set_index(static_cast<uint32_t>(index));
      for (size_t i = 0; i < 4; ++i) worker.add_devices(static_cast<uint32_t>(4 * index + i));
      config.workers.push_back(std::move(worker));
    }
    return config;
  }
  static scheduler::IslandConfig IslandOf(size_t workers) {
    scheduler::IslandConfig config;
    for (size_t index = 0; index < workers; ++index) {
      config.workers.emplace_back();
      for (size_t i = 0; i < 4; ++i)
        config.workers.back().devices.emplace_back(static_cast<uint32_t>(4 * index + i));
    }
    return config;
  }

  void Step(controller::Event event) {
    controller::Actions actions;
    controller_.Step(std::move(event), now_, actions);
    if (actions.to_islands.empty()) return;
    wire::IslandBatch batch;
    for (auto& [island, item] : actions.to_islands) *batch.add_items() = std::move(item);
    Step(scheduler::FromController{std::move(batch)});
  }
  void Step(scheduler::Event event) {
    scheduler::Actions actions;
    island_.Step(std::move(event), now_, actions);
    if (!actions.to_controller.empty()) {
      wire::ReportBatch batch;
      for (wire::Report& report : actions.to_controller) *batch.add_reports() = std::move(report);
      Step(controller::FromScheduler{0, std::move(batch)});
    }
    for (const auto& [workers, item] : actions.to_workers)
      for (const uint32_t index : workers) Step(index, worker::ItemArrived{item});
  }
  void Step(uint32_t index, worker::Event event) {
    std::vector<worker::Event> next;
    next.push_back(std::move(event));
    next.emplace_back(worker::RoundEnded{});
    for (size_t i = 0; i < next.size(); ++i) {
      for (worker::Action& action : workers_[index].Step(std::move(next[i]))) {
        if (auto* load = std::get_if<worker::LoadExecutable>(&action))
          next.emplace_back(worker::ExecutableLoaded{load->executable, {}});
        if (auto* run = std::get_if<worker::Run>(&action)) {
          ++launches;
          next.emplace_back(worker::NodeEnded{run->ordinal, {}, {}});
          next.emplace_back(worker::RoundEnded{});
        }
        if (auto* reports = std::get_if<worker::SendReports>(&action))
          Step(scheduler::FromWorker{index, Incarnation(index + 1), std::move(reports->batch)});
      }
    }
  }

  const size_t device_count_;
  controller::Controller controller_;
  scheduler::Island island_;
  std::vector<worker::WorkerCore> workers_;
  Time now_ = Time() + std::chrono::hours(1);
};

// All of a cluster's work for one gang over all of its devices, whose step consumes the last one's array.
TEST(ClusterCostTest, AGangOverAllDevices) {
  const auto cost = [](size_t devices) {
    Cluster cluster(devices / 4);
    cluster.Compile(1, false);
    cluster.Compile(2, true);
    cluster.Call(1, 0, 1);
    cluster.Call(2, 1, 2);
    const size_t before = cluster.launches;
    const CountedWork work = WorkOf([&] { cluster.Call(2, 2, 3); });
    EXPECT_EQ(cluster.launches, before + devices / 4);
    EXPECT_EQ(cluster.nodes(), 0u);
    return work;
  };
  const CountedWork half = cost(1024), all = cost(2048);
  EXPECT_GT(half.blocks, 1024u) << "nothing was counted";
  EXPECT_LE(static_cast<double>(all.blocks), 2.2 * static_cast<double>(half.blocks))
      << "blocks: " << half.blocks << ", " << all.blocks;
  EXPECT_LE(static_cast<double>(all.bytes), 2.2 * static_cast<double>(half.bytes))
      << "bytes: " << half.bytes << ", " << all.bytes;
}

}  // namespace
}  // namespace gangway::simulation
