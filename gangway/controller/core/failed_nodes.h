// The nodes of launched programs that have failed lately, by their gangs: what fails for such a gang's sake is told of
// later, by its scheduler, which does not know of programs (ER-1). Bounded: the oldest go. Pure; not thread-safe.
#ifndef GANGWAY_CONTROLLER_CORE_FAILED_NODES_H_
#define GANGWAY_CONTROLLER_CORE_FAILED_NODES_H_

#include <cstddef>
#include <deque>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/controller/core/program_node.h"

namespace gangway::controller {

class FailedNodes {
 public:
  static constexpr size_t kNodesMax = 4096;

  void Add(Ordinal gang, const ProgramNode& node) {
    if (!nodes_.try_emplace(gang, node).second) return;
    order_.push_back(gang);
    if (order_.size() <= kNodesMax) return;
    nodes_.erase(order_.front());
    order_.pop_front();
  }
  const ProgramNode* Find(Ordinal gang) const {  // null: unknown
    const auto found = nodes_.find(gang);
    return found == nodes_.end() ? nullptr : &found->second;
  }

 private:
  absl::flat_hash_map<Ordinal, ProgramNode> nodes_;
  std::deque<Ordinal> order_;  // of their failures
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_FAILED_NODES_H_
