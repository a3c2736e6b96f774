// Implementation of nodes.h.
#include "gangway/scheduler/core/nodes.h"

#include <utility>

namespace gangway::scheduler {

NodeState& Nodes::Add(NodeState node) {
  latest_ = node.ordinal;
  const Ordinal ordinal = node.ordinal;
  return nodes_.emplace(ordinal, std::move(node)).first->second;
}

NodeState Nodes::Take(Ordinal ordinal) {
  auto found = nodes_.find(ordinal);
  NodeState node = std::move(found->second);
  nodes_.erase(found);
  return node;
}

NodeState* Nodes::Find(Ordinal ordinal) {
  auto it = nodes_.find(ordinal);
  return it == nodes_.end() ? nullptr : &it->second;
}

const NodeState* Nodes::Find(Ordinal ordinal) const {
  auto it = nodes_.find(ordinal);
  return it == nodes_.end() ? nullptr : &it->second;
}

void Nodes::Count(SessionId session, Ledger::DeviceBytes& books) const {
  for (const auto& [ordinal, node] : nodes_) {
    if (node.session != session || !node.admitted()) continue;
    for (IslandDevice device : node.devices())  // the consumed storages cover what donation saves
      books[device.number()] += node.temp_bytes - node.alias_bytes;
  }
}

void Nodes::Block(NodeState& node, Ordinal producer_ordinal) {
  NodeState* producer = Find(producer_ordinal);
  if (producer == nullptr) return;
  const Until until = node.WaitsFor(*producer);
  if (until == Until::kNothing) return;
  ++node.blockers;
  auto& waiters = until == Until::kEnd        ? producer->end_waiters
                  : until == Until::kEnqueued ? producer->enqueue_waiters
                                              : producer->waiters;
  waiters.push_back(node.ordinal);
}

NodeState* Nodes::Unblock(Ordinal ordinal) {
  NodeState* node = Find(ordinal);
  if (node == nullptr || node->released() || node->blockers == 0) return nullptr;
  --node->blockers;
  return node;
}

}  // namespace gangway::scheduler
