// What a session is told of the workers' plugins.
#include <gtest/gtest.h>

#include <vector>

#include "gangway/controller/core/controller.h"

namespace gangway::controller {
namespace {

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

}  // namespace
}  // namespace gangway::controller
