// The nodes that have not ended: uploads, calls, copies and fetches. Each gets the next ordinal of the cluster's one
// order (GS-1), goes to its islands, and ends once all of them have said so. The first failure counts: it spoils the
// results, and cancels the node where it is still open (ER-2). Gangs over islands take their turns through the
// sequencer, and the halves of a copy between islands wait for its sources (GS-4).
//
// Also what each session is told of its nodes, which its client counts (TM-2): how many have ended, and which, if it
// asked for that. A copy or put counts as often as it has arrays, since its client does not know the nodes. While
// nothing in a session looks for ends, or for that of one node only, its client lets them be told together, which saves
// both sides a wake for each.
//
// Pure; not thread-safe. Stands on Storages, Awaits, Blame and Outbox.
#ifndef GANGWAY_CONTROLLER_CORE_NODES_H_
#define GANGWAY_CONTROLLER_CORE_NODES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/controller/core/awaits.h"
#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/events.h"
#include "gangway/controller/core/failed_nodes.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/node_ends.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/program_node.h"
#include "gangway/controller/core/sequencer.h"
#include "gangway/controller/core/storages.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Nodes {
 public:
  // Whether a session's client has counted a node. It does not know those that the passes of a program have added.
  enum class Counting { kByClient, kUnknownToClient };

  struct Node {
    std::vector<StorageId> results;
    std::vector<uint32_t> open_islands;
    std::vector<uint32_t> unreleased_sources;  // a copy's, that have not reported Released (GS-4)
    std::vector<size_t> senders;               // the workers whose shards leave these islands
    FetchId fetch;                             // the client's number, for fetches
    UploadId upload{};                         // the client's number, for uploads
    uint64_t put_cost = 0;                     // of a put (wire/put_limits.h)
    LaunchedProgramRef launched;               // of a launch
    bool alone = false;                        // likewise: no other may run beside it
    std::vector<uint64_t> numbers;             // from Number(); none: it takes the next one
    Counting counting = Counting::kByClient;
    std::optional<ProgramNode> origin{};  // none: that of SetOrigin
  };

  // All references outlive this. A session may have `pending_max` nodes, and is refused more at twice as many.
  Nodes(uint64_t pending_max, Storages& storages, Awaits& awaits, Blame& blame, Outbox& outbox)
      : pending_max_(pending_max),
        storages_(storages),
        awaits_(awaits),
        blame_(blame),
        outbox_(outbox) {}

  void Open(SessionId session, bool wants_ends);
  void Close(SessionId session);  // its nodes end on their own
  // The sessions below are open.

  // Whether the session may have `count` nodes more.
  wire::FailureRef CheckRoom(SessionId session, uint64_t count = 1) const;
  // Its client counts nodes that were refused, too.
  void Refuse(SessionId session, const wire::FailureRef& why, uint64_t count = 1);

  // What is added or refused from now on is this node of a program; null: of none.
  void SetOrigin(std::optional<ProgramNode> origin) { origin_ = std::move(origin); }
  const std::optional<ProgramNode>& origin() const { return origin_; }
  // A failure that begins with what is added or refused now, which it names if that is a node of a program (ER-1).
  wire::FailureRef AtOrigin(wire::FailureRef failure) const;

  bool HasUpload(SessionId session, UploadId upload) const;
  uint64_t PendingOf(SessionId session) const;
  // Of its puts that have not ended.
  uint64_t PutCostOf(SessionId session) const { return sessions_.at(session).put_cost; }

  // By which the client counts the session's next node, or the next array of a copy or put. It is pending until the
  // node that is to be added with it has ended.
  uint64_t Number(SessionId session);
  Ordinal next() const { return next_; }  // of the node that is added next
  void Add(SessionId session, Node node);
  void OnAbandon(SessionId session, wire::AbandonOp& op);
  void OnTellEnds(SessionId session, const wire::TellEndsOp& op);

  // Reports of the island's scheduler. They may be of nodes that have ended.
  void OnDone(uint32_t island, wire::Done& done);
  void OnReady(uint32_t island, const wire::Report& report);  // that has_ready() or has_admitted()
  // `fleet` has the worker processes that hold the shards now.
  void OnReleased(uint32_t island, const wire::Released& released, const Fleet& fleet);
  // The scheduler is gone.
  void FailIsland(uint32_t island, const wire::Failure& failure);
  void Fail(uint32_t island, Ordinal ordinal, const wire::Failure& failure);

  bool Contains(Ordinal ordinal) const { return nodes_.contains(ordinal); }
  bool IsOpenOn(Ordinal ordinal, uint32_t island) const;
  // Null: it has ended, or is of no program.
  const ProgramNode* OriginOf(Ordinal ordinal) const;
  // What the node launches; null: it has ended, or is no launch.
  LaunchedProgramRef LaunchedBy(Ordinal ordinal) const;
  // Likewise. From now on the node does not count as a run of that program.
  LaunchedProgramRef TakeLaunched(Ordinal ordinal);
  size_t size() const { return nodes_.size(); }
  size_t spanning_count() const { return sequencer_.size(); }

  // Tells the sessions what has ended since the last time, as far as they are to be told now.
  void ReportProgress(Time now);
  std::optional<Time> next_deadline() const;  // of the next ReportProgress

 private:
  struct Entry {
    SessionId session;
    Node node;
    wire::FailureRef failure;
  };
  // What a session is told of the ends of its nodes.
  enum class EndReports {
    kCountOnly,  // how many have ended, now and then
    kAtOnce,     // each, with the step that brings it
    kCoalesced,  // each, together with others
  };
  struct UnreportedEnds {  // which are to be told together
    Time since;            // the first of them
    Time idle_since;       // with nothing pending, if nothing is
    Time report_at;        // in due_; new nodes may have made it too early
  };
  struct OfSession {
    EndReports end_reports = EndReports::kCountOnly;
    std::optional<UnreportedEnds> unreported;
    uint64_t pending = 0;    // that its client counts
    uint64_t uncounted = 0;  // likewise, Counting::kUnknownToClient
    uint64_t put_cost = 0;
    uint64_t ended = 0;
    uint64_t ended_reported = 0;
    uint64_t numbered = 0;  // nodes so far, and further arrays of copies and puts
    NodeEnds ends;
    absl::flat_hash_map<UploadId, Ordinal> uploads;  // that have not ended, by the client's number
  };
  void Follow(const std::vector<Sequencer::Decision>& decisions);
  void Spoil(Ordinal ordinal, Entry& entry, wire::FailureRef failure);
  void End(Ordinal ordinal);
  void TellFailure(const Entry& entry);
  static bool IsDueNow(OfSession& session);
  void NoteUnreported(SessionId id, OfSession& session, Time now);
  static Time DueAt(const OfSession& session);
  void SetDue(SessionId id, UnreportedEnds& unreported, Time due);
  void ReportEnds(SessionId id, OfSession& session);

  const uint64_t pending_max_;
  Storages& storages_;
  Awaits& awaits_;
  Blame& blame_;
  Outbox& outbox_;
  Sequencer sequencer_;
  absl::flat_hash_map<Ordinal, Entry> nodes_;
  std::map<SessionId, OfSession> sessions_;
  std::set<SessionId> progressed_;            // sessions of which nodes have ended in this step
  std::set<std::pair<Time, SessionId>> due_;  // sessions that are to be told later, and when
  std::optional<ProgramNode> origin_;
  FailedNodes failed_;
  Ordinal next_{1};
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_NODES_H_
