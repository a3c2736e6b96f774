// Tests of ready_queue.h against a plain list as the model.
#include "gangway/scheduler/core/ready_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace gangway::scheduler {
namespace {

// The first of each list of devices, in ordinal order.
std::vector<Ordinal> Heads(const std::map<Ordinal, uint64_t>& nodes) {
  std::vector<Ordinal> heads;
  std::set<uint64_t> seen;
  for (const auto& [ordinal, list] : nodes) {
    if (seen.insert(list).second) heads.push_back(ordinal);
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
  ReadyQueue queue;
  std::map<Ordinal, uint64_t> nodes;
  for (int i = 0; i < 5000; ++i) {
    Ordinal ordinal(random() % 200);
    auto it = nodes.find(ordinal);
    if (it == nodes.end()) {
      nodes[ordinal] = random() % 5;
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
  queue.Erase(Ordinal(1), 7);
  queue.Insert(Ordinal(2), 7);
  queue.Erase(Ordinal(1), 7);
  EXPECT_EQ(queue.NextHead(Ordinal(0)), Ordinal(2));
  EXPECT_EQ(queue.NextHead(Ordinal(3)), std::nullopt);
}

}  // namespace
}  // namespace gangway::scheduler
