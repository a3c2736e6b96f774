// One island's scheduler: the single order of its gangs. A pure state machine; service/ gives it
// threads and links.
//
// Nodes arrive in ordinal order and go to their workers at once, for host-side work (DF-2). A node
// becomes ready when every producer of its inputs is released or has ended (an upload must have
// ended, GS-4) and every earlier reader of its donated inputs is released. Ready nodes are taken in
// ordinal order. A node that lacks memory (GS-2) or window slots claims its devices, so that no
// later node overtakes it there; later nodes may overtake a node that still waits for producers.
// The order of the Release messages is the island's order, the same for all workers (GS-1).
//
// A gang that spans islands waits for its turn once its part here could be released. On its turn,
// given by the controller's sequencer, its parts on all islands take memory and slots before all
// other gangs. The sequencer releases the parts once every one of them holds both.
//
// Failures: a node whose worker, input or executable is lost ends with a failure record, which its
// results keep. Input is trusted to be well-formed wire messages but not to be consistent: unknown
// ids fail nodes, never the process.
#ifndef GANGWAY_SCHEDULER_CORE_ISLAND_H_
#define GANGWAY_SCHEDULER_CORE_ISLAND_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/gang_waits.h"
#include "gangway/scheduler/core/ledger.h"
#include "gangway/scheduler/core/memory_queue.h"
#include "gangway/scheduler/core/ready_queue.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

using Time = std::chrono::steady_clock::time_point;

struct WorkerSpec {
  std::vector<DeviceId> devices;
  Incarnation last_incarnation;  // known to an earlier scheduler of this island; 0 = none
};

struct IslandConfig {
  uint32_t island = 0;
  std::vector<WorkerSpec> workers;  // by index in the island
  uint32_t window = 16;             // launches in flight per device; below the backend's own limit
  uint64_t budget_bytes = 0;        // per device; 0 = no limit but the workers' own
  std::chrono::milliseconds memory_wait_max{30000};
  std::chrono::milliseconds worker_wait_max{20000};
  std::chrono::milliseconds upload_wait_max{60000};  // for the next byte of a released upload
  // Of a member of a gang in a collective of Gangway's own, for another member:
  std::chrono::milliseconds late_after{5000};          // the missing members are logged
  std::chrono::milliseconds collective_limit{300000};  // the gang is aborted
  // Of the work of ended sessions, first on a device: its worker is ended.
  std::chrono::milliseconds orphan_limit{10000};
  // In which the host callbacks of one session hold a device that others wait for: its gang is aborted.
  std::chrono::milliseconds callback_hold_max{120000};
};

struct FromController {
  wire::IslandBatch batch;
};
struct WorkerUp {
  wire::WorkerRegistration registration;
  uint64_t process_id = 0;
};
struct WorkerDown {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::Failure why;
  bool crashed = false;  // what it executed may have ended it
};
struct FromWorker {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::ReportBatch batch;
};
// A heartbeat that names stuck or held devices or members of gangs, or the first that names none again.
struct WorkerBeat {
  uint32_t worker = 0;
  Incarnation incarnation;
  wire::Heartbeat beat;
  std::vector<Time> heard;  // as for Explain
};
struct Tick {};
using Event = std::variant<FromController, WorkerUp, WorkerDown, FromWorker, WorkerBeat, Tick>;

struct Actions {
  std::vector<std::pair<uint32_t, wire::IslandItem>> to_workers;  // worker index in the island
  std::vector<wire::Report> to_controller;
  std::vector<std::string>
      notices;  // log lines: stuck devices, late gangs, missed deadlines (TM-1)
  std::vector<ExecutableId> unloaded;  // no Load of these comes any more
  // Processes that get nothing more, and whose links are to be closed. Items for them come before.
  std::vector<WorkerDown> replaced;
};

class Island {
 public:
  explicit Island(IslandConfig config);

  void Step(Event event, Time now, Actions& actions);

  // Reports what nodes and workers wait for; for a gang, the chain of waits behind it. `heard`: per
  // worker, when its last message arrived; Time() = never.
  void Explain(const wire::WhyRequest& request, Time now, const std::vector<Time>& heard,
               wire::WhyReply& reply) const;

  // When the next Tick is due, if any.
  std::optional<Time> next_deadline() const;

  size_t node_count() const { return nodes_.size(); }
  size_t storage_count() const { return storages_.size(); }
  const Ledger& ledger() const { return ledger_; }

 private:
  friend struct IslandPeer;  // of tests: breaks books

  enum class Kind { kLaunch, kUpload, kCopy, kFetch };

  // Consecutive shards of a storage, of which some may be on other islands.
  struct Shards {
    StorageId storage;
    uint32_t first = 0, count = 0;
  };

  struct NodeState {
    Ordinal ordinal;
    SessionId session;
    Kind kind = Kind::kLaunch;
    wire::Node message;                 // kept only while a worker that needs it is down
    std::vector<uint32_t> workers;      // that take part
    std::vector<IslandDevice> devices;  // where memory is charged or slots are taken; sorted
    std::vector<StorageId> reads;       // each once; including the consumed ones
    std::vector<StorageId> consumes;    // sorted: those of which it consumes shards
    std::vector<Shards> consumed;       // these shards
    std::vector<StorageId> writes;
    uint64_t result_bytes = 0;  // per device of `devices`
    uint64_t temp_bytes = 0;
    uint64_t alias_bytes = 0;  // part of result_bytes that reuses consumed storages
    uint64_t argument_bytes = 0;
    ExecutableId executable;
    wire::ProgramLabelRef program;              // of a launch
    std::shared_ptr<const std::string> client;  // likewise: of its session, for people
    bool alone = false;                         // likewise: no other launch may run beside it
    bool calls_host = false;                    // likewise
    std::vector<Ordinal> waiters;  // nodes to unblock when this is released (an upload: ended)
    uint32_t blockers = 0;
    bool from_other_island = false;   // receives shards from there: waits for Released
    bool to_other_island = false;     // sends shards there: reports Released
    std::vector<uint32_t> senders;    // copy: workers that send to other workers of this island
    std::vector<uint32_t> receivers;  // copy: workers that receive from a worker anywhere
    std::vector<wire::Worker> far_senders;  // copy: senders on other islands
    bool unsent =
        false;  // held back: a worker is down, or a producer or an earlier reader is unsent
    bool spans = false;     // a launch that also has devices on other islands
    bool offered = false;   // spanning: reported ready, and waits for its turn
    bool has_turn = false;  // spanning: may take memory and slots
    bool admitted = false;  // holds memory and slots
    bool released = false;
    std::vector<uint32_t> open_workers;  // workers that have not reported Done, ascending
    wire::FailureRef failure;
    Time arrived;
    Time released_at;
    uint64_t place = 0;                // in the order of releases
    bool said_late = false;            // logged as late
    std::optional<Time> waits_since;   // released upload: its release, or its latest bytes
    std::optional<Time> memory_since;  // ready, and did not fit into memory since then
  };

  struct Executable {
    wire::Load load;
    wire::ProgramLabelRef label;
    std::shared_ptr<const std::string> client;
  };

  struct StorageState {
    Ordinal producer;  // node that has not ended; 0 = settled
    SessionId session;
    std::vector<IslandDevice> devices;  // of its shards here
    std::vector<uint32_t> shards;       // their numbers, ascending; empty: 0, 1, 2 ...
    std::vector<bool> charged;          // by place in `devices`: the ledger counts it
    uint64_t shard_bytes = 0;
    uint32_t uses = 0;                // nodes that read or write it and have not ended (OB-1)
    uint32_t unreleased_readers = 0;  // nodes, also those that consume shards of it
    // Nodes that consume shards of it and wait for earlier readers.
    struct Consumer {
      Ordinal node;
      uint32_t readers_left = 0;
    };
    std::vector<Consumer> consumers;
    // Shards without a handle that wait for the nodes up to `last` which use the storage. Later ones do not use them.
    struct Leaving {
      Ordinal last;
      uint32_t uses_left = 0;
      std::vector<Shards> shards;
    };
    std::vector<Leaving> leaving;
    // Another storage, or a transfer, may hold its buffers: its memory cannot be reused by donation.
    bool shared = false;
    bool freed = false;                         // no handle is left
    bool reclaimed = false;                     // the workers were told to free its shards
    wire::FailureRef failure;                   // of all shards
    std::map<uint32_t, wire::FailureRef> lost;  // the shards on these workers are gone
  };

  // What a device does for a gang with collectives of Gangway's own, as its worker has said.
  struct Member {
    IslandDevice device;
    Ordinal gang;
    wire::GangMember::Stage stage = wire::GangMember::STAGE_UNKNOWN;
    Time since;  // of a member in a collective
    std::string collective;
    std::optional<IslandDevice> awaited;
    std::string client;  // whose host callback it waits for
  };

  struct WorkerState {
    IslandDevice first_device;  // its others are the next ones
    Incarnation incarnation;    // 0 = down
    Incarnation latest;         // the current incarnation, or the last one
    Incarnation before_latest;  // 0 = none
    wire::WorkerRegistration registration;
    uint64_t process_id = 0;
    wire::DataBytes data;  // as last reported
    struct Stuck {
      DeviceId device;
      Ordinal gang;
      Time since;
    };
    std::vector<Stuck> stuck;
    std::set<uint32_t> known_to;  // workers that were told of this incarnation as a member
    // The latest item for it in the actions of step `sent_in`.
    uint64_t sent_in = 0;
    size_t sent_at = 0;
    std::vector<Member> members;      // of gangs that take more than a second
    uint32_t launches = 0;            // admitted and not ended there
    uint32_t host_callers = 0;        // those of them that call their client
    Ordinal alone;                    // the one that runs alone; 0 = none
    bool launches_awaited = false;    // the next one that ends lets a node go on
    std::optional<Ordinal> ends_for;  // it was told to end because of this gang
    std::set<SessionId> admitted;     // whose data streams each of its processes takes
  };

  struct DeviceState {
    uint32_t worker = 0;
    DeviceId id;
    uint32_t slots_taken = 0;
    bool slot_awaited = false;         // the next one that comes back lets a node go on
    std::optional<Time> orphan_since;  // since when work of ended sessions comes first on it
  };

  // intake.cc: items from the controller.
  void OnItem(wire::IslandItem& item, Time now, Actions& actions);
  void OnNode(wire::Node& message, Time now, Actions& actions);
  wire::FailureRef Describe(const wire::Node& message, NodeState& node);
  wire::FailureRef DescribeKind(const wire::Node& message, NodeState& node);
  wire::FailureRef DescribeLaunch(const wire::Launch& launch, NodeState& node);
  void DescribeUpload(const wire::Upload& upload, NodeState& node);
  void DescribeCopy(const wire::Copy& copy, NodeState& node);
  void DescribeFetch(const wire::Fetch& fetch, NodeState& node);
  void NoteShared(const wire::Copy& copy, const NodeState& node);
  void AddReads(const wire::ArrayRef& ref, const google::protobuf::RepeatedField<uint32_t>& devices,
                NodeState& node);
  void AddPlaces(const google::protobuf::RepeatedField<uint32_t>& devices, NodeState& node,
                 bool charge);
  void AddResult(StorageId storage, const google::protobuf::RepeatedField<uint32_t>& devices,
                 uint64_t shard_bytes, NodeState& node);
  wire::FailureRef Link(NodeState& node);
  void SendNode(const NodeState& node, wire::Node message, Actions& actions);
  wire::FailureRef LostBytes(const wire::Node& message) const;
  void OnLoad(const wire::Load& load, Actions& actions);
  std::vector<uint32_t> WorkersOf(const wire::Load& load) const;
  void SendLoad(const wire::Load& load, const std::vector<uint32_t>& workers, Actions& actions);
  void OnUnload(const wire::Unload& unload, Actions& actions);
  void Unload(Actions& actions);
  void LoadAgain(ExecutableId executable, Time now, Actions& actions);
  void OnFree(const wire::Free& free, Actions& actions);
  void OnFreeShards(const Shards& shards, Actions& actions);
  void OnEndSession(SessionId session, Time now, Actions& actions);
  void OnAdmitSession(const wire::AdmitSession& admit, Actions& actions);
  void OnReplaceWorker(wire::ReplaceWorker& replace, Actions& actions);
  void OnReleasedElsewhere(wire::Released& released);
  void OnTurn(const wire::Ordinals& turn);
  void OnReleaseOfSpanning(const wire::Release& release, Time now, Actions& actions);
  void OnCancel(const wire::Cancel& cancel, Actions& actions);
  void OnProbe(uint64_t probe, Actions& actions);

  // schedule.cc: admission and release.
  void Schedule(Time now, Actions& actions);
  void ScheduleHeavy(Time now, Actions& actions);
  size_t ScheduleTurns(Time now, std::vector<bool>& claimed, Actions& actions);
  enum class Outcome { kReleased, kNoMemory, kNoSlots, kFailed };
  Outcome TryRelease(NodeState& node, Time now, Actions& actions);
  bool HasMemory(const NodeState& node) const;
  // What it takes on each of its devices when it is admitted.
  static uint64_t NewBytes(const NodeState& node) {
    return node.result_bytes + node.temp_bytes - node.alias_bytes;
  }
  void ResumeFitting();
  void WaitForMemory(NodeState& node, Time now);
  void StopWaitingForMemory(NodeState& node);
  bool HasSlots(const NodeState& node);
  bool RunsAlone(const NodeState& node) const;
  bool MayRunBeside(const NodeState& node);
  size_t Claim(const NodeState& node, std::vector<bool>& claimed) const;
  wire::FailureRef InputFailure(const NodeState& node) const;
  wire::FailureRef LostShard(const wire::Node& message) const;
  wire::FailureRef LostShard(const wire::ArrayRef& ref,
                             const google::protobuf::RepeatedField<uint32_t>& devices) const;
  void Charge(NodeState& node);
  void Release(NodeState& node, Actions& actions);
  void SendPeers(const NodeState& node, Actions& actions);
  void MakeReady(const NodeState& node);
  void EndReads(const NodeState& node);
  void Offer(NodeState& node, Actions& actions);
  void Admit(NodeState& node, Actions& actions);
  void NoteExchange(const NodeState& node);
  void ReportExchanges(Actions& actions);
  void Unblock(Ordinal ordinal);
  void SendRelease(uint32_t worker, Ordinal ordinal, Actions& actions);
  void OnMemoryDeadlines(Time now, Actions& actions);
  wire::FailureRef MemoryFailure(const NodeState& node) const;
  void WaitForBytes(NodeState& node, Time now);
  void StopWaitingForBytes(NodeState& node);
  void OnStaging(const wire::Staging& staging, Time now);
  void OnUploadDeadlines(Time now, Actions& actions);

  // books.cc
  void Credit(SessionId session, IslandDevice device, uint64_t bytes);
  Ledger::Books CountAgain(SessionId session) const;
  void MendBooks(Actions& actions);

  // completion.cc: ends, failures, frees.
  void OnReport(uint32_t worker, wire::Report& report, Time now, Actions& actions);
  void OnWorkerDone(uint32_t worker, wire::Done& done, Actions& actions);
  void OnWorkerFailing(uint32_t worker, wire::Done& failing, Actions& actions);
  void CancelOpenWorkers(const NodeState& node, Actions& actions);
  void FailUnreleased(Ordinal ordinal, wire::FailureRef failure, Actions& actions);
  void End(Ordinal ordinal, Actions& actions);
  void CreditConsumed(const NodeState& node);
  std::vector<uint32_t> WorkersOf(const std::vector<IslandDevice>& devices) const;
  void Unuse(StorageId storage, Ordinal node, Actions& actions);
  static std::optional<size_t> PlaceOf(const StorageState& storage, uint32_t shard);
  void Discharge(StorageState& storage, size_t place);
  void Discharge(StorageState& storage);
  void DischargeLost(StorageState& storage);
  void Reclaim(StorageId id, Actions& actions);
  void ReclaimShards(const Shards& shards, Actions& actions);

  // explain.cc
  struct Heads;
  Heads FindHeads() const;
  void ExplainWorkers(Time now, const std::vector<Time>& heard, wire::WhyReply& reply) const;
  void NameForGang(wire::Wait& wait) const;
  void ExplainNode(const NodeState& node, Time now, const std::vector<Time>& heard,
                   const Heads& heads, wire::Wait& wait) const;
  void ExplainReleased(const NodeState& node, Time now, const std::vector<Time>& heard,
                       const Heads& heads, wire::Wait& wait) const;
  bool UsesRuntimesCollectives(const NodeState& node) const;
  void ExplainBlocked(const NodeState& node, wire::Wait& wait) const;
  void ExplainReady(const NodeState& node, Time now, const Heads& heads, wire::Wait& wait) const;
  void ExplainMemory(const NodeState& node, wire::Wait& wait) const;
  static uint64_t Ms(Time::duration duration);
  bool IsSilent(uint32_t worker, Time now, const std::vector<Time>& heard) const;
  static bool WaitsForOtherIslands(const NodeState& node) {
    return (node.offered && !node.has_turn) || (node.spans && node.admitted);
  }

  // late.cc
  void OnMembers(const WorkerBeat& event, Time now, Actions& actions);
  void NoticeLate(NodeState& node, Time now, const WorkerBeat& event, Actions& actions);
  void EndLate(NodeState& node, Time now, const WorkerBeat& event, Actions& actions);
  // False: no member is known to wait for long.
  bool ExplainLate(const NodeState& node, Time now, const std::vector<Time>& heard,
                   wire::Wait& wait) const;
  void ExplainMissing(const NodeState& node, IslandDevice device, Time now,
                      const std::vector<Time>& heard, const std::vector<const NodeState*>& ahead,
                      wire::Wait::Missing& missing) const;
  void SetForGang(wire::Wait::Missing::Cause cause, Ordinal gang,
                  wire::Wait::Missing& missing) const;
  std::vector<bool> Awaited(const NodeState& node) const;
  bool IsMissing(const NodeState& node, IslandDevice device, bool is_awaited, Time now,
                 const std::vector<Time>& heard) const;
  const Member* FindMember(const NodeState& node, IslandDevice device) const;
  wire::GangMember::Stage MemberStage(const NodeState& node, IslandDevice device) const;
  const WorkerState::Stuck* FindStuck(IslandDevice device) const;
  const Member* FirstWaiting(const NodeState& node, Time now) const;
  Ordinal OpenProducer(const NodeState& node, IslandDevice device) const;
  std::vector<const NodeState*> LaunchesAhead(const NodeState& node) const;
  bool IsOpenOn(const NodeState& node, IslandDevice device) const;

  // deadlock.cc
  void OnGangWaits(uint32_t worker, wire::GangWaits& report, Actions& actions);
  void OnWaitHeld(uint32_t worker, const wire::WaitHeld& held, Actions& actions);
  void Ask(Ordinal gang, const GangWaits::Ring& ring, Actions& actions);
  void EndDeadlock(NodeState& node, const GangWaits::Ring& ring, Actions& actions);
  NodeState* FindRunning(Ordinal gang, uint32_t worker);
  // By its index on the worker; nullopt: there is none.
  std::optional<IslandDevice> DeviceOf(uint32_t worker, uint32_t device) const;
  uint32_t LocalIndex(IslandDevice device) const {
    return static_cast<uint32_t>(device.number() -
                                 workers_[StateOf(device).worker].first_device.number());
  }
  // orphans.cc: work that holds devices of others for too long.
  void AddOrphan(Ordinal ordinal, Time now);
  void OnOrphans(Time now, Actions& actions);
  std::vector<const NodeState*> FirstLaunches() const;
  void EndWorker(uint32_t worker, Ordinal gang, wire::Failure why, Actions& actions);
  void OnHeld(const WorkerBeat& event, Time now, Actions& actions);
  bool OthersWait(const NodeState& node, IslandDevice device) const;
  void EndHold(const NodeState& holder, IslandDevice device, Time now, Actions& actions);
  static std::string OwnerText(const NodeState& node);
  std::vector<const NodeState*> LaunchesOn(uint32_t worker) const;
  static std::string LaunchesText(const std::vector<const NodeState*>& launches);

  // workers.cc: workers that start, are lost and return.
  void OnWorkerUp(WorkerUp& event, Time now, Actions& actions);
  void OnWorkerDown(WorkerDown& event, Actions& actions);
  void OnWorkerBeat(const WorkerBeat& event, Time now, Actions& actions);
  void NoticeStuck(uint32_t worker, const WorkerState::Stuck& stuck, Actions& actions) const;
  void ReportUp(uint32_t worker, Actions& actions) const;
  // Whether the collectives of the program are Gangway's own, so that its workers must know one another.
  static bool HasMembers(const wire::Load& load) {
    return load.has_positions() && load.has_collectives();
  }
  wire::Worker MemberOn(uint32_t worker) const;
  void NameMember(uint32_t worker, Actions& actions);
  void EndLost(uint32_t worker, const wire::Failure& lost, Actions& actions);
  void LoseShards(uint32_t worker, Actions& actions);
  void OnWorkerDeadlines(Time now, Actions& actions);
  bool MustWaitForWorkers(const NodeState& node) const;
  void HoldBack(NodeState& node);
  void EndHolding(const NodeState& node);  // if it is held back
  // Whether its workers may wait for shards, bytes or gang members that will never arrive.
  static bool MayWaitForOthers(const NodeState& node) {
    return node.kind == Kind::kCopy || node.kind == Kind::kUpload || node.spans ||
           (node.kind == Kind::kLaunch && node.workers.size() > 1);
  }
  void ResumeUnsent(Actions& actions);
  void SendToWorkers(const std::vector<uint32_t>& workers, wire::IslandItem item, Actions& actions);
  void Emit(uint32_t worker, wire::IslandItem item, Actions& actions);
  // Whether the worker had not ended the node yet; now it has.
  bool CloseFor(uint32_t worker, NodeState& node);
  void ReturnSlot(IslandDevice device);
  void ReturnWorker(uint32_t worker, const NodeState& node);
  DeviceState& StateOf(IslandDevice device) { return devices_[device.number()]; }
  const DeviceState& StateOf(IslandDevice device) const { return devices_[device.number()]; }
  std::string WorkerName(uint32_t worker) const;
  std::optional<uint32_t> WorkerOf(std::string_view name) const;  // the inverse
  wire::Worker DescribeWorker(uint32_t worker) const;

  const IslandConfig config_;
  std::vector<DeviceState> devices_;  // by IslandDevice
  absl::flat_hash_map<DeviceId, IslandDevice> device_index_;
  std::vector<WorkerState> workers_;
  Ledger ledger_;
  std::map<SessionId, std::string> broken_books_;  // found in this step, and how
  std::map<Ordinal, NodeState> nodes_;             // not ended
  std::map<Ordinal, GangWaits> gang_waits_;        // of those whose members have waited for long
  uint64_t wait_checks_ = 0;                       // so far
  absl::flat_hash_map<StorageId, StorageState> storages_;
  std::map<ExecutableId, Executable> executables_;
  struct LoadFailure {
    wire::FailureRef failure;  // the latest
    std::set<uint32_t> workers;
    Time at;
  };
  absl::flat_hash_map<ExecutableId, LoadFailure> load_failures_;
  ReadyQueue ready_;               // unreleased, no blockers, need memory or slots
  std::set<Ordinal> ready_light_;  // unreleased, no blockers, need neither
  MemoryQueue memory_queue_;       // ready nodes that wait for memory
  std::set<std::pair<Time, Ordinal>> memory_waits_;  // since when; also nodes on their turn
  bool memory_freed_ = false;                        // since memory_queue_ was looked through
  std::set<std::pair<Time, Ordinal>> uploads_;       // released uploads, by waits_since
  std::set<Ordinal> unsent_;
  std::map<StorageId, std::set<Ordinal>> unsent_readers_;  // of them, by what they read
  bool unsent_input_failed_ = false;                       // an unsent node may have to fail
  std::vector<Ordinal> exchanges_;    // two-way copies that wait only for the other island
  std::set<Ordinal> turns_;           // spanning gangs on their turn, not yet admitted
  std::set<ExecutableId> unloading_;  // to unload once no unsent node needs them
  bool shards_lost_ = false;          // since the start
  std::set<Ordinal>
      orphans_;  // released launches of ended sessions, or that were aborted for their callbacks
  Time orphans_due_;  // when they are looked at next
  struct Hold {
    Time::duration held{};  // less the time that passed without
    Time last;
  };
  std::map<SessionId, Hold>
      holds_;              // by the host callbacks of sessions, of devices that others wait for
  Ordinal latest_;         // node that came
  uint64_t epoch_ = 0;     // of the island: how often a worker has started or ended
  uint64_t releases_ = 0;  // so far: the place of the latest in the order
  uint64_t step_ = 0;      // number of the step
  bool only_parts_ended_ =
      false;  // in this step so far: all that came is that workers ended nodes of others too
  wire::FailureRef last_loss_;  // the latest lost worker, to explain missing inputs
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ISLAND_H_
