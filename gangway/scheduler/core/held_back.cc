// Implementation of held_back.h.
#include "gangway/scheduler/core/held_back.h"

namespace gangway::scheduler {

void HeldBack::Add(const NodeState& node) {
  AddWaiting(node);
  to_look_at_.insert(node.ordinal);
}

void HeldBack::AddWaiting(const NodeState& node) {
  nodes_.insert(node.ordinal);
  for (StorageId id : node.reads) readers_[id].insert(node.ordinal);
}

bool HeldBack::EndWaiting(Ordinal ordinal) {
  if (!nodes_.contains(ordinal) || !to_look_at_.insert(ordinal).second) return false;
  look_ = true;
  return true;
}

bool HeldBack::Remove(const NodeState& node) {
  if (nodes_.erase(node.ordinal) == 0) return false;
  to_look_at_.erase(node.ordinal);
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
