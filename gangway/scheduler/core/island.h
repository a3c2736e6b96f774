// One island's scheduler: the single order of its gangs. A pure state machine; service/ gives it
// threads and links.
//
// Nodes arrive in ordinal order and go to their workers at once, for host-side work (DF-2). A node
// becomes ready when every producer of its inputs is released or has ended (an upload must have
// ended, GS-4) and every earlier reader of its donated inputs is released. Ready nodes are taken in
// ordinal order. The devices of a node that lacks window slots are kept for it, so that no later node
// overtakes it there. One that lacks memory (GS-2) stands aside, and is overtaken a limited number of
// times. Any later node may overtake one that still waits for producers.
// The order of the Release messages is the island's order, the same for all workers (GS-1).
//
// A gang that spans islands waits for its turn once its part here could be released. On its turn,
// given by the controller's sequencer, its parts on all islands take memory and slots before all
// other gangs. The sequencer releases the parts once every one of them holds both.
//
// Failures: a node whose worker, input or executable is lost ends with a failure record, which its
// results keep. Input is trusted to be well-formed wire messages but not to be consistent: unknown
// ids fail nodes, never the process.
//
// The island itself keeps next to nothing: it hands each event to the class that keeps what the event concerns.
// Dependencies run one way, from the left to the right, and nothing points back:
//
//   Island -> Lifecycle -> IslandState (Admission, Storages, Executables, Members ... -> Outbox, Books -> Fleet)
//   Island -> Explain, Late, launches: functions over a const IslandState (View)
//
// A new record has its class in IslandState; what happens to a node, in Lifecycle; which node goes next, in Admission.
#ifndef GANGWAY_SCHEDULER_CORE_ISLAND_H_
#define GANGWAY_SCHEDULER_CORE_ISLAND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"
#include "gangway/scheduler/core/island_state.h"
#include "gangway/scheduler/core/ledger.h"
#include "gangway/scheduler/core/lifecycle.h"
#include "gangway/scheduler/core/node.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

class Island {
 public:
  explicit Island(IslandConfig config) : state_(std::move(config)), lifecycle_(state_) {}

  void Step(Event event, Time now, Actions& actions);

  // Reports what nodes and workers wait for; for a gang, the chain of waits behind it. `heard`: per
  // worker, when its last message arrived; Time() = never.
  void Explain(const wire::WhyRequest& request, Time now, const std::vector<Time>& heard,
               wire::WhyReply& reply) const;

  // When the next Tick is due, if any.
  std::optional<Time> next_deadline() const;

  size_t node_count() const { return state_.nodes.size(); }
  size_t storage_count() const { return state_.storages.size(); }
  const Ledger& ledger() const { return state_.books.ledger(); }

 private:
  friend struct IslandPeer;  // of tests: breaks books

  // island.cc: events, and what time brings.
  void Dispatch(Event& event, Time now);
  void FinishStep(Time now);
  void OnWorkerDeadlines(Time now);
  void OnMemoryDeadlines(Time now);
  void OnUploadDeadlines(Time now);
  wire::FailureRef MemoryFailure(const NodeState& node) const;
  void OnOrphans(Time now);
  void MendBooks();

  // intake.cc: items from the controller.
  void OnItem(wire::IslandItem& item, Time now);
  void OnNode(wire::Node& message, Time now);
  void OnEndSession(SessionId session, Time now);
  void OnAdmitSession(const wire::AdmitSession& admit);
  void OnReplaceWorker(wire::ReplaceWorker& replace);
  void OnReleasedElsewhere(wire::Released& released);
  void OnTurn(const wire::Ordinals& turn);
  void OnReleaseOfSpanning(const wire::Release& release, Time now);
  void OnCancel(const wire::Cancel& cancel);
  void OnProbe(uint64_t probe);

  // reports.cc: what workers say of nodes.
  void OnReport(uint32_t worker, wire::Report& report, Time now);
  void OnWorkerDone(uint32_t worker, wire::Done& done);
  void OnWorkerEnqueued(const wire::Released& released);
  void OnWorkerFailing(uint32_t worker, wire::Done& failing);
  void OnGangWaits(uint32_t worker, wire::GangWaits& report);
  void OnWaitConfirmed(uint32_t worker, const wire::WaitConfirmed& confirmed);
  void OnStaging(const wire::Staging& staging, Time now);
  NodeState* FindRunning(Ordinal gang, uint32_t worker);

  // workers.cc: workers that start, beat and are lost.
  void OnWorkerUp(WorkerUp& event, Time now);
  void OnWorkerDown(const WorkerDown& event);
  void OnWorkerBeat(const WorkerBeat& event, Time now);
  void NoticeStuck(uint32_t worker, const Fleet::Stuck& stuck);
  void OnMembers(const WorkerBeat& event, Time now);
  void OnCallbackHolds(const WorkerBeat& event, Time now);
  void EndHold(const NodeState& holder, IslandDevice device, Time now);

  IslandState state_;
  Lifecycle lifecycle_;
  // Whether all that this step has brought so far is that workers ended their parts of nodes which other workers still
  // run. Such a step frees nothing that another node waits for.
  bool only_parts_ended_ = false;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ISLAND_H_
