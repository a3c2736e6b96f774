// One island's scheduler: the single order of its gangs. A pure state machine; service/ gives it
// threads and links.
//
// Nodes arrive in ordinal order and go to their workers at once, for host-side work (DF-2). A node
// becomes ready when every producer of its inputs is released or has ended, an upload when it has
// ended (GS-4), and every earlier reader of what it donates is released. Ready nodes are taken in
// ordinal order: one that lacks memory (GS-2) or window slots claims its devices, so that no later
// node can overtake it there; one that still waits for producers is overtaken. The order of the
// Release messages is the island's order, the same for all workers (GS-1).
//
// A gang with devices of other islands, too, waits for its turn when it could go: the controller's
// sequencer then lets the parts on all its islands take memory and slots, before all other gangs,
// and releases them when all have.
//
// Fails: a node whose worker, input or executable is lost, ends with a failure record; its results
// keep it. Input is trusted to be well-formed wire messages but not to be consistent: unknown ids
// fail nodes, never the process.
#ifndef GANGWAY_SCHEDULER_CORE_ISLAND_H_
#define GANGWAY_SCHEDULER_CORE_ISLAND_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/scheduler/core/ledger.h"
#include "gangway/scheduler/core/ready_queue.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::scheduler {

using Time = std::chrono::steady_clock::time_point;

struct WorkerSpec {
  std::vector<uint32_t> devices;  // global ids
  uint64_t last_incarnation = 0;  // that an earlier scheduler of this island knew; 0 = none
};

struct IslandConfig {
  uint32_t island = 0;
  std::vector<WorkerSpec> workers;  // by index in the island
  uint32_t window = 16;             // launches in flight per device; below the backend's own limit
  uint64_t budget_bytes = 0;        // per device; 0 = no limit
  std::chrono::milliseconds memory_wait_max{30000};
  std::chrono::milliseconds worker_wait_max{20000};
  std::chrono::milliseconds upload_wait_max{60000};  // for the next byte of a released upload
};

// Deliberate bugs, to prove that the simulation's checkers can fail. Never set in the product.
enum class PlantedBug {
  kNone,
  kOrderByArrival,
  kReleaseWithoutProducers,
  kIgnoreDestinations,   // of uploads: bytes that died with a worker are waited for
  kNoDeadlineOfUploads,  // bytes that are never sent are waited for
  kForgetPeers,          // receivers of a copy are not told whom to ask
  kTurnWithoutPriority,  // of gangs over several islands: they wait for gangs of one island
  kNoSequencer,          // parts of gangs over several islands are released as each island likes
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
  uint64_t incarnation = 0;
  wire::Failure why;
};
struct FromWorker {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  wire::ReportBatch batch;
};
// A heartbeat that names stuck devices, or the first one after that.
struct WorkerBeat {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  wire::Heartbeat beat;
};
struct Tick {};
using Event = std::variant<FromController, WorkerUp, WorkerDown, FromWorker, WorkerBeat, Tick>;

struct Actions {
  std::vector<std::pair<uint32_t, wire::IslandItem>> to_workers;  // worker index in the island
  std::vector<wire::Report> to_controller;
  std::vector<std::string> notices;  // for people: waits that passed their deadline (TM-1)
};

class Island {
 public:
  explicit Island(IslandConfig config, PlantedBug bug = PlantedBug::kNone);

  void Step(Event event, Time now, Actions& actions);

  // What nodes and workers wait for. `heard`: per worker, when a message of its last came; Time() =
  // never. A gang comes with what it waits for, and so on.
  void Explain(const wire::WhyRequest& request, Time now, const std::vector<Time>& heard,
               wire::WhyReply& reply) const;

  // When a Tick is due, if ever.
  std::optional<Time> next_deadline() const;

  size_t node_count() const { return nodes_.size(); }
  size_t storage_count() const { return storages_.size(); }
  const Ledger& ledger() const { return ledger_; }

 private:
  enum class Kind { kLaunch, kUpload, kCopy, kFetch };

  struct NodeState {
    uint64_t ordinal = 0;
    uint64_t session = 0;
    Kind kind = Kind::kLaunch;
    wire::Node message;             // kept only while a worker that needs it is down
    std::vector<uint32_t> workers;  // that take part
    std::vector<uint32_t> devices;  // island-local, where memory is charged or slots are taken
    std::vector<uint64_t> reads;    // storages; consumed ones too
    std::vector<uint64_t> consumes;
    std::vector<uint64_t> writes;
    uint64_t result_bytes = 0;  // per device of `devices`
    uint64_t temp_bytes = 0;
    uint64_t alias_bytes = 0;  // of result_bytes, taken over from consumed storages
    uint64_t argument_bytes = 0;
    uint64_t executable = 0;
    wire::ProgramLabelRef program;  // of a launch
    std::vector<uint64_t> waiters;  // nodes to unblock when this is released (an upload: ended)
    uint32_t blockers = 0;
    bool from_other_island =
        false;                      // shards come from there: waits for Released of its own ordinal
    bool to_other_island = false;   // shards go there: reports Released
    std::vector<uint32_t> senders;  // of a copy: workers whose shards go to others of this island
    std::vector<uint32_t> receivers;  // workers that get shards of another one, here or elsewhere
    std::vector<wire::Worker> far_senders;  // of other islands
    bool unsent = false;                    // a worker, or a producer's, is down; waits for it
    bool spans = false;     // a launch with devices of other islands, too: the sequencer says when
    bool offered = false;   // of those: could go, said so, and waits for its turn
    bool has_turn = false;  // the sequencer lets it take memory and slots
    bool admitted = false;  // holds memory and slots
    bool released = false;
    std::vector<uint32_t> open_workers;  // that have not reported Done
    std::optional<wire::Failure> failure;
    Time arrived;
    Time released_at;
    std::optional<Time> waits_since;  // released upload: when its last bytes came
  };

  struct Executable {
    wire::Load load;
    wire::ProgramLabelRef label;
  };

  struct StorageState {
    uint64_t producer = 0;  // node that has not ended; 0 = there
    uint64_t session = 0;
    std::vector<uint32_t> devices;  // island-local
    uint64_t shard_bytes = 0;
    uint32_t uses = 0;  // nodes not ended that read or write it (OB-1)
    uint32_t unreleased_readers = 0;
    uint64_t consumer = 0;          // node that waits for those readers
    std::vector<uint32_t> charged;  // of `devices`, those whose ledger counts it
    bool freed = false;             // no handle is left
    bool reclaimed = false;         // its shards are gone from the workers
    std::optional<wire::Failure> failure;
  };

  struct WorkerState {
    uint64_t incarnation = 0;    // 0 = down
    uint64_t latest = 0;         // the one that is up, or was last
    uint64_t before_latest = 0;  // 0 = none
    wire::WorkerRegistration registration;
    uint64_t process_id = 0;
    wire::DataBytes data;  // as it last said
    struct Stuck {
      uint32_t device = 0;  // global id
      uint64_t gang = 0;
      Time since;
    };
    std::vector<Stuck> stuck;
  };

  struct DeviceState {
    uint32_t worker = 0;
    uint32_t id = 0;  // global
    uint32_t slots_taken = 0;
  };

  // intake.cc: what the controller sends.
  void OnItem(wire::IslandItem& item, Time now, Actions& actions);
  void OnNode(wire::Node& message, Time now, Actions& actions);
  std::optional<wire::Failure> Describe(const wire::Node& message, NodeState& node);
  std::optional<wire::Failure> DescribeLaunch(const wire::Launch& launch, NodeState& node);
  void DescribeUpload(const wire::Upload& upload, NodeState& node);
  void DescribeCopy(const wire::Copy& copy, NodeState& node);
  void DescribeFetch(const wire::Fetch& fetch, NodeState& node);
  void AddReads(const wire::ArrayRef& ref, const google::protobuf::RepeatedField<uint32_t>& devices,
                NodeState& node);
  void AddPlaces(const google::protobuf::RepeatedField<uint32_t>& devices, NodeState& node,
                 bool charge);
  void AddResult(uint64_t storage, const google::protobuf::RepeatedField<uint32_t>& devices,
                 uint64_t shard_bytes, NodeState& node);
  std::optional<wire::Failure> Link(NodeState& node);
  void SendNode(const NodeState& node, wire::Node message, Actions& actions);
  std::optional<wire::Failure> LostBytes(const wire::Node& message) const;
  void OnLoad(const wire::Load& load, Actions& actions);
  void OnUnload(const wire::Unload& unload, Actions& actions);
  void Unload(Actions& actions);
  void OnFree(const wire::Free& free, Actions& actions);
  void OnEndSession(uint64_t session, Actions& actions);
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
  bool HasSlots(const NodeState& node) const;
  std::optional<wire::Failure> InputFailure(const NodeState& node) const;
  void Charge(NodeState& node);
  void Release(NodeState& node, Actions& actions);
  void SendPeers(const NodeState& node, Actions& actions);
  void MakeReady(const NodeState& node);
  void Offer(NodeState& node, Actions& actions);
  void Admit(NodeState& node, Actions& actions);
  void NoteExchange(const NodeState& node);
  void ReportExchanges(Actions& actions);
  void Unblock(uint64_t ordinal);
  void SendRelease(uint32_t worker, uint64_t ordinal, Actions& actions);
  void OnPrepared(uint32_t worker, uint64_t ordinal, Actions& actions);
  void OnMemoryDeadlines(Time now, Actions& actions);
  wire::Failure MemoryFailure(const NodeState& node) const;
  void WaitForBytes(NodeState& node, Time now);
  void StopWaitingForBytes(NodeState& node);
  void OnStaging(const wire::Staging& staging, Time now);
  void OnUploadDeadlines(Time now, Actions& actions);

  // completion.cc: ends, failures, frees.
  void OnReport(uint32_t worker, wire::Report& report, Time now, Actions& actions);
  void OnWorkerDone(uint32_t worker, wire::Done& done, Actions& actions);
  void CancelOpenWorkers(const NodeState& node, Actions& actions);
  void FailUnreleased(uint64_t ordinal, wire::Failure failure, Actions& actions);
  void End(uint64_t ordinal, Actions& actions);
  void Unuse(uint64_t storage, Actions& actions);
  void Discharge(StorageState& storage);
  void Reclaim(uint64_t id, Actions& actions);

  // explain.cc
  struct Heads;
  Heads FindHeads() const;
  void ExplainWorkers(Time now, const std::vector<Time>& heard, wire::WhyReply& reply) const;
  void NameForGang(wire::Wait& wait) const;
  void ExplainNode(const NodeState& node, Time now, const std::vector<Time>& heard,
                   const Heads& heads, wire::Wait& wait) const;
  void ExplainReleased(const NodeState& node, Time now, const std::vector<Time>& heard,
                       const Heads& heads, wire::Wait& wait) const;
  void ExplainBlocked(const NodeState& node, wire::Wait& wait) const;
  void ExplainReady(const NodeState& node, Time now, const Heads& heads, wire::Wait& wait) const;
  void ExplainMemory(const NodeState& node, wire::Wait& wait) const;
  static bool WaitsForOtherIslands(const NodeState& node) {
    return (node.offered && !node.has_turn) || (node.spans && node.admitted);
  }

  // workers.cc: workers that come and go.
  void OnWorkerUp(WorkerUp& event, Time now, Actions& actions);
  void OnWorkerDown(WorkerDown& event, Actions& actions);
  void OnWorkerBeat(const WorkerBeat& event, Time now, Actions& actions);
  void NoticeStuck(uint32_t worker, const WorkerState::Stuck& stuck, Actions& actions) const;
  void ReportUp(uint32_t worker, Actions& actions) const;
  void EndLost(uint32_t worker, const wire::Failure& lost, Actions& actions);
  void OnWorkerDeadlines(Time now, Actions& actions);
  bool MustWaitForWorkers(const NodeState& node) const;
  // Its workers may be waiting for shards, bytes or members of the gang that will never come.
  static bool MayWaitForOthers(const NodeState& node) {
    return node.kind == Kind::kCopy || node.kind == Kind::kUpload || node.spans ||
           (node.kind == Kind::kLaunch && node.workers.size() > 1);
  }
  void ResumeUnsent(Actions& actions);
  void SendToWorkers(const std::vector<uint32_t>& workers, const wire::IslandItem& item,
                     Actions& actions);
  std::string WorkerName(uint32_t worker) const;
  wire::Worker DescribeWorker(uint32_t worker) const;

  const IslandConfig config_;
  const PlantedBug bug_;
  std::vector<DeviceState> devices_;                      // island-local index
  absl::flat_hash_map<uint32_t, uint32_t> device_index_;  // global id -> island-local
  std::vector<WorkerState> workers_;
  Ledger ledger_;
  std::map<uint64_t, NodeState> nodes_;  // not ended
  absl::flat_hash_map<uint64_t, StorageState> storages_;
  std::map<uint64_t, Executable> executables_;
  absl::flat_hash_map<uint64_t, wire::Failure> load_failures_;
  ReadyQueue ready_;                             // unreleased, no blockers, need memory or slots
  std::set<uint64_t> ready_light_;               // unreleased, no blockers, need neither
  std::map<uint64_t, Time> memory_blocked_;      // ready nodes that wait for memory, since when
  std::set<std::pair<Time, uint64_t>> uploads_;  // released ones, by waits_since
  std::set<uint64_t> unsent_;
  bool unsent_input_failed_ = false;        // some unsent node may have to fail
  std::vector<uint64_t> exchanges_;         // copies both ways whose own sources are on their way
  std::set<uint64_t> turns_;                // spanning gangs that have their turn, not admitted
  std::set<uint64_t> unloading_;            // executables to unload, once no unsent node needs them
  std::optional<wire::Failure> last_loss_;  // of a worker, for inputs that went with it
  std::vector<uint64_t> prepared_;          // per worker; only for the planted bug
  std::vector<std::vector<uint64_t>> held_releases_;  // per worker; only for the planted bug
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_ISLAND_H_
