// Implementation of held_back.h.
#include "gangway/scheduler/core/held_back.h"

namespace gangway::scheduler {

void HeldBack::Add(const NodeState& node) {
  nodes_.insert(node.ordinal);
  for (StorageId id : node.reads) readers_[id].insert(node.ordinal);
}

bool HeldBack::Remove(const NodeState& node) {
  if (nodes_.erase(node.ordinal) == 0) return false;
  for (StorageId id : node.reads) {
    auto readers = readers_.find(id);
    readers->second.erase(node.ordinal);
    if (readers->second.empty()) readers_.erase(readers);
  }
  return true;
}

bool HeldBack::IsReadBefore(StorageId storage, Ordinal ordinal) const {
  auto readers = readers_.find(storage);
  return readers != readers_.end() && *readers->second.begin() < ordinal;
}

}  // namespace gangway::scheduler
