// The controller: sessions, their arrays and executables, storages and the one global order of
// nodes. A pure state machine; service/ gives it threads and links.
//
// Applies a session's operations in order, without waiting. Resolves handles to storages, stamps every node with a
// global ordinal, sends one message per node and island (DF-1), and counts who holds each storage (OB-1): arrays here,
// pending nodes in the schedulers. Drops, deletion, donation and loss concern single shards. A session's end frees all
// that it owned (OB-2); a handle means nothing outside its session (OB-3). Errors stick to arrays as failure records
// (ER-1).
//
// This class only passes events on. The rooms behind it each keep one thing, and know only those to their right; none
// knows the controller:
//
//   Launches              ->  Programs, Calls, Transfers, and what these stand on
//   Calls, Transfers      ->  Executables, SessionArrays, Nodes, Storages, Isolation, Fleet, Blame, Outbox
//   Nodes                 ->  Awaits, Storages, Blame, Fleet, Outbox
//   Awaits                ->  SessionArrays, Storages, Outbox
//   SessionArrays         ->  Storages, Fleet
//   Storages              ->  Outbox
//   Programs              ->  SessionArrays, Executables, Fleet, Outbox
//   Executables           ->  CompileQueue, Isolation, Fleet, Outbox
//   CompileQueue          ->  CompileBacklog, CompilerProcesses, CompileBlame
//   Isolation             ->  Fleet, Outbox
//   Fleet, Outbox, Blame  ->  none
//   explain, status and presence (introspection.h, presence.h): functions over const views of the rooms
//
// Input from clients is hostile: unknown, freed, foreign or mismatched handles spoil the results of
// the operation that names them and nothing else. The work for one message grows with its size, not
// faster (simulation/message_cost_test.cc), and all that a failure spoils shares one record of it.
#ifndef GANGWAY_CONTROLLER_CORE_CONTROLLER_H_
#define GANGWAY_CONTROLLER_CORE_CONTROLLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gangway/base/ids.h"
#include "gangway/controller/core/awaits.h"
#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/calls.h"
#include "gangway/controller/core/controller_config.h"
#include "gangway/controller/core/events.h"
#include "gangway/controller/core/executables.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/introspection.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/launches.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/presence.h"
#include "gangway/controller/core/programs.h"
#include "gangway/controller/core/session.h"
#include "gangway/controller/core/storages.h"
#include "gangway/controller/core/transfers.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Controller {
 public:
  explicit Controller(ControllerConfig config);
  Controller(const Controller&) = delete;  // its rooms refer to one another
  Controller& operator=(const Controller&) = delete;

  // Replaces `actions` by those of this step.
  void Step(Event event, Time now, Actions& actions);
  std::optional<Time> next_deadline() const;

  void FillStatus(Time now, wire::StatusReply& reply) const;  // introspection.h
  bool Explain(wire::WhyRequest& request, Time now, wire::WhyReply& reply) const;
  void NameWaits(wire::WhyReply& reply) const { controller::NameWaits(view(), reply); }
  void FillTopology(wire::Topology& topology, const Owner& owner = {}) const;  // presence.h
  std::string AbsentWorkers(const Owner& owner = {}) const;
  // Actions::presence_changed says when to look again.
  std::string AbsentProcesses() const;
  bool AwaitsFirstStart() const { return fleet_.AwaitsFirstStart(); }
  bool AwaitsReplacement(const Owner& owner, Time since) const {
    return isolation_.AwaitsReplacement(owner, since);
  }
  std::string ClaimedByOthers(const Owner& owner) const {
    return isolation_.ClaimedByOthers(owner);
  }
  std::optional<wire::Failure> CheckDrain(const wire::DrainRequest& request) const {
    return fleet_.CheckDrain(request);
  }

  // Adds the island's workers to the terms of its scheduler.
  void FillTerms(uint32_t island, wire::IslandTerms& terms) const;

  size_t storage_count() const { return storages_.size(); }
  size_t node_count() const { return nodes_.size(); }
  // No node and no compile is under way.
  bool idle() const { return nodes_.size() == 0 && executables_.compiles().size() == 0; }
  size_t spanning_count() const { return nodes_.spanning_count(); }

 private:
  void Dispatch(Event& event, Time now);
  void OnSessionOpened(const SessionOpened& opened);
  void OnSessionLost(SessionId id, Time now);
  void OnOp(Session& session, wire::Op& op, Time now);

  // reports.cc: what schedulers report, and their ends.
  void OnReport(uint32_t island, wire::Report& report, Time now);
  void OnBrokenBooks(wire::BrokenBooks& broken, Time now);
  void OnLeaving(uint32_t island, const wire::Leaving& leaving);
  void OnWorkerState(wire::WorkerState& state, Time now);
  void OnWorkerLost(size_t worker, const wire::WorkerState& lost, Time now);
  void BlameOrphan(const wire::WorkerState& lost, Time now);
  void LoseWorker(size_t worker, const wire::Failure& why, Time now);
  void ReplaceWorker(size_t worker, const Owner& owner, Time now);
  void OnSchedulerUp(const SchedulerUp& up);
  void OnSchedulerDown(const SchedulerDown& down, Time now);

  PresenceView presence() const { return {fleet_, isolation_, outbox_}; }
  ControllerView view() const;

  const ControllerConfig config_;
  Fleet fleet_;
  Outbox outbox_;
  Isolation isolation_;
  Blame blame_;
  Storages storages_;
  Awaits awaits_;
  Nodes nodes_;
  Executables executables_;
  Calls calls_;
  Transfers transfers_;
  Programs programs_;
  Launches launches_;
  std::map<SessionId, Session> sessions_;
  wire::EndedSessions ended_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CONTROLLER_H_
