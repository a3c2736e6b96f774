// Tests of ready_queue.h against a plain list as the model.
#include "gangway/scheduler/core/ready_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace gangway::scheduler {
namespace {

using Devices = ReadyQueue::Devices;

// The first of each list of devices, in ordinal order.
std::vector<uint64_t> Heads(const std::map<uint64_t, Devices>& nodes) {
  std::vector<uint64_t> heads;
  std::set<Devices> seen;
  for (const auto& [ordinal, devices] : nodes) {
    if (seen.insert(devices).second) heads.push_back(ordinal);
  }
  return heads;
}

std::vector<uint64_t> Walk(const ReadyQueue& queue) {
  std::vector<uint64_t> heads;
  uint64_t from = 0;
  while (auto head = queue.NextHead(from)) {
    heads.push_back(*head);
    from = *head + 1;
  }
  return heads;
}

TEST(ReadyQueueTest, AWalkSeesTheFirstOfEachLane) {
  std::mt19937 random(7);
  const IslandDevice a(0), b(1), c(2), d(3);
  const std::vector<Devices> lists = {{a}, {b}, {a, b}, {c, d}, {b, c}};
  ReadyQueue queue;
  std::map<uint64_t, Devices> nodes;
  for (int i = 0; i < 5000; ++i) {
    uint64_t ordinal = random() % 200;
    auto it = nodes.find(ordinal);
    if (it == nodes.end()) {
      nodes[ordinal] = lists[random() % lists.size()];
      queue.Insert(ordinal, nodes[ordinal]);
    } else {
      queue.Erase(ordinal, it->second);
      nodes.erase(it);
    }
    ASSERT_EQ(Walk(queue), Heads(nodes)) << i;
  }
}

TEST(ReadyQueueTest, ErasingWhatIsNotThereIsNothing) {
  ReadyQueue queue;
  queue.Erase(1, {IslandDevice(0)});
  queue.Insert(2, {IslandDevice(0)});
  queue.Erase(1, {IslandDevice(0)});
  EXPECT_EQ(queue.NextHead(0), 2u);
  EXPECT_EQ(queue.NextHead(3), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
