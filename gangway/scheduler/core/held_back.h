// Nodes that are held back from their workers: one of these is down or, for a put, full; or the node reads results of a
// node that is held back, or consumes what such a node reads; or it is dispatched after others (wire::Dispatch), and
// waits for them. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_HELD_BACK_H_
#define GANGWAY_SCHEDULER_CORE_HELD_BACK_H_

#include <map>
#include <set>
#include <utility>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/node.h"

namespace gangway::scheduler {

class HeldBack {
 public:
  bool empty() const { return nodes_.empty(); }
  const std::set<Ordinal>& nodes() const { return nodes_; }
  // Those that do not wait for others, in their order.
  const std::set<Ordinal>& to_look_at() const { return to_look_at_; }
  bool Contains(Ordinal ordinal) const { return nodes_.contains(ordinal); }

  void Add(const NodeState& node);
  // It waits for others alone, and need not be looked at before EndWaiting.
  void AddWaiting(const NodeState& node);
  // It waits for these no longer. False: it did not.
  bool EndWaiting(Ordinal ordinal);
  // False: it was not held back.
  bool Remove(const NodeState& node);

  // Whether a node before this one reads the storage: its workers would hear of a donation first.
  bool IsReadBefore(StorageId storage, Ordinal ordinal) const;

  // A node has failed, a worker was lost, or one is full no longer: those that are left are to be looked at.
  void LookAgain() { look_ |= !to_look_at_.empty(); }
  bool must_look() const { return look_; }
  void NoteLooked() { look_ = false; }

 private:
  std::set<Ordinal> nodes_;
  std::set<Ordinal> to_look_at_;                    // a part of them
  std::map<StorageId, std::set<Ordinal>> readers_;  // none is empty
  bool look_ = false;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_HELD_BACK_H_
