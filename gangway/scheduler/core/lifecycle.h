// A node's life from its arrival to its end. Each method takes nodes from one stage to another (node.h) and keeps the
// records of an island in step with it: which nodes wait for which, what uses a storage, what holds memory and slots,
// which deadlines run, and what workers and the controller are told.
//
// A node becomes ready when every producer of its inputs is released or has ended, and every earlier reader of its
// donated inputs is released. An upload must have ended (GS-4); a put, whose bytes its workers got with it, need not.
// The order of the releases is the island's order, the same for all workers (GS-1).
//
// A NodeState& is invalid after a call that may end nodes. Not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_LIFECYCLE_H_
#define GANGWAY_SCHEDULER_CORE_LIFECYCLE_H_

#include <cstdint>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/describe.h"
#include "gangway/scheduler/core/island_state.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Lifecycle {
 public:
  explicit Lifecycle(IslandState& island) : island_(island) {}

  // lifecycle.cc: nodes come, and are blocked.
  // Sends the node to its workers, unless it must be held back. Its ordinal is new.
  void Add(Description description, wire::Node message);
  // One of the node's blockers is gone.
  void Unblock(Ordinal ordinal);
  // One more worker has given the sequential launch to its devices; not all had.
  void NoteEnqueued(NodeState& node);
  // Sends the nodes that are held back and need not be any more, and fails those that lost an input.
  void ResumeHeldBack(Time now);
  // A copy whose shards cross between islands in both directions: each side reports Released as soon as its own sources
  // are released (GS-4 requires no more). Otherwise each side would wait forever for the other's release.
  void ReportTwoWayCopies();

  // release.cc: admission (GS-2) and release (GS-4).
  // Releases what is ready and may go.
  void Schedule(Time now);
  // Of a gang over several islands, which holds memory and slots.
  void Release(NodeState& node, Time now);
  // The node no longer waits for memory, and others need not wait behind it.
  void EndMemoryWait(const NodeState& node);

  // completion.cc: ends and failures.
  // A worker has ended its part. False: it had ended it before, or has none.
  bool Close(uint32_t worker, NodeState& node);
  // Ends the node if no worker is left that runs it.
  void EndIfClosed(const NodeState& node);
  // A part of a node that was released has failed. The node ends once its other workers have ended their parts; they
  // are told to, where they may wait for others.
  void FailReleased(NodeState& node, wire::FailureRef failure);
  // Likewise, but nothing has failed yet: all workers are told to end it.
  void Abort(NodeState& node, wire::FailureRef failure);
  // ER-2: ends a node that was not released, spoils its results and cancels it on its workers.
  void FailUnreleased(Ordinal ordinal, wire::FailureRef failure);
  // Cancels the node on those of its workers that have not ended it.
  void CancelOpen(const NodeState& node, const wire::Failure& failure);
  // Fails the nodes that the worker took part in.
  void LoseWorker(uint32_t worker, const wire::Failure& lost);

 private:
  // kReleased: also one that spans islands and was offered to the sequencer, or admitted.
  enum class Outcome { kReleased, kNoMemory, kNoSlots, kFailed };

  wire::FailureRef Link(NodeState& node);
  // Whether its workers get it only after the nodes that block it.
  static bool MustWait(const NodeState& node);
  bool MustHoldBack(const NodeState& node) const;
  void HoldBack(NodeState& node);
  void NoteWorkerWait(const NodeState& node, Time now);
  void SendNode(const NodeState& node, wire::Node message);
  void MakeReady(NodeState& node);
  void NoteTwoWayCopy(const NodeState& node);
  wire::FailureRef InputFailure(const NodeState& node) const;
  wire::FailureRef LostShard(const wire::Node& message) const;
  wire::FailureRef LostBytes(const wire::Node& message) const;

  void ScheduleHeavy(Time now);
  void ScheduleTurns(Time now, KeptDevices& kept);
  Outcome TryRelease(NodeState& node, Time now);
  void Take(NodeState& node);
  void Offer(NodeState& node);
  void Admit(NodeState& node);
  void IntroduceSenders(const CopyPart& copy);
  void EndReads(const NodeState& node);

  void ReturnAll(const NodeState& node);
  void ReturnPutRoom(uint32_t worker, const NodeState& node);
  void End(Ordinal ordinal);

  IslandState& island_;
  OrderPosition latest_release_;
  std::vector<Ordinal> two_way_copies_;  // those that wait only for the other island
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_LIFECYCLE_H_
