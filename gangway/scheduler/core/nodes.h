// The nodes of an island that have not ended, by ordinal, and which of them wait for which others: each counts its
// blockers, and the nodes that it blocks are on its list. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_NODES_H_
#define GANGWAY_SCHEDULER_CORE_NODES_H_

#include <map>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/ledger.h"
#include "gangway/scheduler/core/node.h"

namespace gangway::scheduler {

class Nodes {
 public:
  // The ordinal is new. What is returned stays where it is until the node ends.
  NodeState& Add(NodeState node);
  NodeState Take(Ordinal ordinal);

  // Null: it has ended, or never came.
  NodeState* Find(Ordinal ordinal);
  const NodeState* Find(Ordinal ordinal) const;
  NodeState& At(Ordinal ordinal) { return nodes_.at(ordinal); }

  // In ordinal order.
  const std::map<Ordinal, NodeState>& all() const { return nodes_; }
  std::map<Ordinal, NodeState>& all() { return nodes_; }
  size_t size() const { return nodes_.size(); }
  // What the books must hold for the session's admitted nodes, besides what they write.
  void Count(SessionId session, Ledger::DeviceBytes& books) const;
  // The latest node that came; 0: none.
  Ordinal latest() const { return latest_; }

  // `node`, which may not be in the table yet, waits for what it needs of `producer` (NodeState::WaitsFor). Does
  // nothing if that is past.
  void Block(NodeState& node, Ordinal producer);
  // One of the blockers is gone. Returns the node; null: it waits for none, as it has ended or is released.
  NodeState* Unblock(Ordinal ordinal);

 private:
  std::map<Ordinal, NodeState> nodes_;
  Ordinal latest_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_NODES_H_
