// Tests of ready_queue.h against a plain list as the model.
#include "gangway/scheduler/core/ready_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace gangway::scheduler {
namespace {

using Devices = ReadyQueue::Devices;

// The first of each list of devices, in ordinal order.
std::vector<Ordinal> Heads(const std::map<Ordinal, Devices>& nodes) {
  std::vector<Ordinal> heads;
  std::set<Devices> seen;
  for (const auto& [ordinal, devices] : nodes) {
    if (seen.insert(devices).second) heads.push_back(ordinal);
  }
  return heads;
}

std::vector<Ordinal> Walk(const ReadyQueue& queue) {
  std::vector<Ordinal> heads;
  Ordinal from;
  while (auto head = queue.NextHead(from)) {
    heads.push_back(*head);
    from = Ordinal(head->number() + 1);
  }
  return heads;
}

TEST(ReadyQueueTest, AWalkSeesTheFirstOfEachLane) {
  std::mt19937 random(7);
  const IslandDevice a(0), b(1), c(2), d(3);
  const std::vector<Devices> lists = {{a}, {b}, {a, b}, {c, d}, {b, c}};
  ReadyQueue queue;
  std::map<Ordinal, Devices> nodes;
  for (int i = 0; i < 5000; ++i) {
    Ordinal ordinal(random() % 200);
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
  queue.Erase(Ordinal(1), {IslandDevice(0)});
  queue.Insert(Ordinal(2), {IslandDevice(0)});
  queue.Erase(Ordinal(1), {IslandDevice(0)});
  EXPECT_EQ(queue.NextHead(Ordinal(0)), Ordinal(2));
  EXPECT_EQ(queue.NextHead(Ordinal(3)), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
