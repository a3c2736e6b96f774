// Tests of presence.h, through a whole controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "gangway/controller/core/controller_test_util.h"

namespace gangway::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

wire::PluginAttribute Version(const std::string& name, std::vector<int64_t> numbers) {
  wire::PluginAttribute attribute;
  attribute.set_name(name);
  attribute.mutable_numbers()->mutable_values()->Add(numbers.begin(), numbers.end());
  return attribute;
}

wire::PluginAttribute Number(const std::string& name, int64_t number) {
  wire::PluginAttribute attribute;
  attribute.set_name(name);
  attribute.set_number(number);
  return attribute;
}

// Of a cluster whose workers register with these attributes.
wire::Topology TopologyOf(const std::vector<std::vector<wire::PluginAttribute>>& workers) {
  ControllerConfig config;
  for (uint32_t i = 0; i < workers.size(); ++i) {
    wire::Worker& worker = config.workers.emplace_back();
    worker.set_index(i);
    worker.add_devices(i);
  }
  Controller controller(config);
  for (uint32_t i = 0; i < workers.size(); ++i) {
    FromScheduler event{0, {}};
    wire::WorkerState& state = *event.batch.add_reports()->mutable_worker_state();
    *state.mutable_worker() = config.workers[i];
    state.mutable_worker()->set_platform("cpu");
    state.mutable_worker()->set_incarnation(1);
    for (const wire::PluginAttribute& attribute : workers[i])
      *state.mutable_worker()->add_attributes() = attribute;
    state.set_up(true);
    Actions actions;
    controller.Step(std::move(event), Time(), actions);
  }
  wire::Topology topology;
  controller.FillTopology(topology);
  return topology;
}

TEST(TopologyTest, AttributesOfEqualWorkersAreTold) {
  const std::vector<wire::PluginAttribute> all = {Version("stablehlo_current_version", {1, 9, 0}),
                                                  Number("xla_version", 2)};
  const wire::Topology topology = TopologyOf({all, all});
  ASSERT_EQ(topology.attributes_size(), 2);
  EXPECT_EQ(topology.attributes(0).SerializeAsString(), all[0].SerializeAsString());
  EXPECT_EQ(topology.attributes(1).number(), 2);
  EXPECT_TRUE(topology.workers(0).attributes().empty());
}

TEST(TopologyTest, OfVersionsThatDifferTheOneThatAllReadIsTold) {
  const wire::Topology topology = TopologyOf({{Version("stablehlo_current_version", {1, 10, 0}),
                                               Version("stablehlo_minimum_version", {0, 9, 0})},
                                              {Version("stablehlo_current_version", {1, 9, 7}),
                                               Version("stablehlo_minimum_version", {1, 0, 0})}});
  ASSERT_EQ(topology.attributes_size(), 2);
  EXPECT_EQ(topology.attributes(0).numbers().values(1), 9);
  EXPECT_EQ(topology.attributes(1).numbers().values(0), 1);
}

TEST(TopologyTest, WhatOneWorkerLacksOrSaysOtherwiseIsNotTold) {
  EXPECT_EQ(TopologyOf({{Number("a", 1), Number("b", 1)}, {Number("b", 2)}}).attributes_size(), 0);
  EXPECT_EQ(TopologyOf({{}, {Number("b", 2)}}).attributes_size(), 0);
}

using PresenceTest = ControllerTest;

TEST_F(PresenceTest, ASessionThatBeginsWithoutAWorkerIsToldSo) {
  for (uint32_t island : {0, 1})
    for (uint32_t worker : {0, 1}) BringUp(island, worker, 5);
  EXPECT_FALSE(controller_->AwaitsFirstStart());
  LoseWorker(0, 1);
  EXPECT_FALSE(controller_->AwaitsFirstStart()) << "it was up before";
  wire::Topology topology;
  controller_->FillTopology(topology);
  ASSERT_EQ(topology.workers_size(), 3);
  EXPECT_EQ(topology.workers(1).island(), 1u);
  EXPECT_THAT(topology.absent(), testing::ElementsAre("island0/worker1 (devices 2, 3)"));
  BringUp(0, 1, 6);
  topology.Clear();
  controller_->FillTopology(topology);
  EXPECT_EQ(topology.workers_size(), 4);
  EXPECT_THAT(topology.absent(), IsEmpty());
}

TEST_F(PresenceTest, WhatIsAbsentIsNamedAndEachChangeIsSaid) {
  const std::string all = "island0/worker0, island0/worker1, island1/worker0, island1/worker1";
  EXPECT_EQ(controller_->AbsentProcesses(), all);
  Step(CompilerDown{});
  EXPECT_TRUE(actions_.presence_changed);
  EXPECT_EQ(controller_->AbsentProcesses(), all + ", the compiler");
  Step(CompilerUp{2});
  EXPECT_TRUE(actions_.presence_changed);
  for (uint32_t i = 0; i < 4; ++i) {
    BringUp(i / 2, i % 2, 1);
    EXPECT_TRUE(actions_.presence_changed);
  }
  EXPECT_EQ(controller_->AbsentProcesses(), "");
  BringUp(1, 0, 1);  // its scheduler repeats what it has said
  EXPECT_FALSE(actions_.presence_changed);
  Have(1, {0});
  EXPECT_FALSE(actions_.presence_changed);
  LoseWorker(1, 0, 1);
  EXPECT_TRUE(actions_.presence_changed);
  EXPECT_EQ(controller_->AbsentProcesses(), "island1/worker0");
}

TEST(AbsentProcessesTest, ManyWorkersAreCounted) {
  ControllerConfig config;
  for (uint32_t i = 0; i < 4096; ++i) {
    wire::Worker& worker = config.workers.emplace_back();
    worker.set_index(i);
    worker.add_devices(i);
  }
  const std::string absent = Controller(config).AbsentProcesses();
  EXPECT_THAT(absent, testing::StartsWith("island0/worker0, island0/worker1, "));
  EXPECT_THAT(absent, testing::EndsWith("island0/worker15, 4080 more workers, the compiler"));
}

}  // namespace
}  // namespace gangway::controller
