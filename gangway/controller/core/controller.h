// The controller: sessions, their arrays and executables, storages and the one global order of
// nodes. A pure state machine; service/ gives it threads and links.
//
// Applies a session's operations in order, without waiting. Resolves handles to storages, stamps
// every node with a global ordinal, sends one message per node and island (DF-1), and counts who
// holds each storage (OB-1): arrays here, pending nodes in the schedulers. Drops, deletion, donation
// and loss concern single shards. A
// session's end frees all that it owned (OB-2); a handle means nothing outside its session (OB-3).
// Errors stick to arrays as failure records (ER-1).
//
// A scheduler in its own process may be lost, and its island's arrays with it; its successor starts
// empty. Items for an island without a scheduler are held here, nodes until a deadline; executables
// are kept here to be loaded again.
//
// Input from clients is hostile: unknown, freed, foreign or mismatched handles spoil the results of
// the operation that names them and nothing else. The work for one message grows with its size, not
// faster (simulation/message_cost_test.cc), and all that a failure spoils shares one record of it.
#ifndef GANGWAY_CONTROLLER_CORE_CONTROLLER_H_
#define GANGWAY_CONTROLLER_CORE_CONTROLLER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "gangway/base/ids.h"
#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/claims.h"
#include "gangway/controller/core/compile_queue.h"
#include "gangway/controller/core/node_ends.h"
#include "gangway/controller/core/sequencer.h"
#include "gangway/controller/core/shard_holds.h"
#include "gangway/wire/ended_sessions.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

using Time = std::chrono::steady_clock::time_point;

// How far one program may span. Workers support the first two so far.
enum class Reach { kWorker, kIsland, kCluster };

struct ControllerConfig {
  uint64_t epoch = 0;
  std::vector<wire::Worker> workers;   // the declared topology
  std::set<uint32_t> remote_islands;   // down until SchedulerUp; others always up
  uint64_t pending_nodes_max = 16384;  // per session (TM-2)
  uint64_t arrays_max = 4u << 20;      // per session
  CompileLimits compiles;
  BlameLimits blame;
  std::chrono::milliseconds scheduler_wait_max{20000};  // for a scheduler that is down
  // Makes 32 unguessable bytes for each copy between workers. Empty: no tokens (simulation, tests).
  std::function<std::string()> new_token;
  Reach program_reach = Reach::kIsland;
  bool own_collectives = false;  // Gangway's also inside of a worker, where they are to be had
  bool isolates =
      false;  // sessions of different owners share no worker and no compiler (isolation.cc)
};

struct SessionOpened {
  SessionId session;
  std::string name;
  bool wants_ends = false;  // Hello.wants_ends
  std::string certificate;  // of its client; empty: none
};
struct FromClient {
  SessionId session;
  wire::SessionBatch batch;
};
struct SessionLost {  // closed, crashed or lease expired
  SessionId session;
};
struct FromScheduler {
  uint32_t island = 0;
  wire::ReportBatch batch;
};
struct SchedulerUp {  // of a remote island
  uint32_t island = 0;
  uint64_t process_id = 0;
};
struct SchedulerDown {
  uint32_t island = 0;
  std::string why;
};
struct CompilerUp {
  uint64_t process_id = 0;
  uint32_t compiler = 0;  // below config.compiles.compilers, as those below
};
struct CompilerDown {
  uint32_t compiler = 0;
};
struct FromCompiler {
  wire::CompileResult result;
  uint32_t compiler = 0;
};
struct CompileNotSent {  // the link to the compiler did not take the request
  uint64_t request = 0;
  wire::Failure failure;
  bool link_ends = false;  // the request itself is not to blame; CompilerDown follows
};
struct Drain {  // of a request that CheckDrain accepts
  wire::DrainRequest request;
};
struct DrainAll {};  // the cluster shuts down: no new work anywhere
struct Tick {};
using Event =
    std::variant<SessionOpened, FromClient, SessionLost, FromScheduler, SchedulerUp, SchedulerDown,
                 CompilerUp, CompilerDown, FromCompiler, CompileNotSent, Drain, DrainAll, Tick>;

// The executable that the CompileResult at hand has made. Each of its islands gets one Unload in the end.
struct Compiled {
  ExecutableId executable;
  size_t island_count = 0;
};

struct Actions {
  std::vector<std::pair<SessionId, wire::SessionEvent>> to_clients;
  std::vector<std::pair<uint32_t, wire::IslandItem>> to_islands;  // island
  std::vector<std::pair<uint32_t, wire::CompileRequest>> to_compilers;
  std::optional<Compiled> compiled;
  std::vector<CompilerEnd> end_compilers;
  std::vector<uint32_t> start_compilers;  // spares
  std::vector<std::string> notices;       // for people
  std::vector<std::pair<SessionId, wire::Failure>>
      ended;                      // by the controller, and why; their links are to be closed
  bool presence_changed = false;  // of a declared process: it has come up, or gone down
};

class Controller {
 public:
  explicit Controller(ControllerConfig config);

  void Step(Event event, Time now, Actions& actions);
  std::optional<Time> next_deadline() const;

  // All but the devices' bytes, which the schedulers know.
  void FillStatus(Time now, wire::StatusReply& reply) const;
  // Adds the waits that are known here, and rewrites `request` for the schedulers: an array becomes
  // the gang that produces it. False: the schedulers need not be asked.
  bool Explain(wire::WhyRequest& request, Time now, wire::WhyReply& reply) const;
  // What a new session sees: the declared workers that are up, except those that an operator drained, that are about
  // to leave or that another owner has claimed; and the names of what is absent.
  void FillTopology(wire::Topology& topology, const Owner& owner = {}) const;
  // Names of the schedulers and undrained workers that are down or about to leave; empty if none. Not those that an
  // owner other than this has claimed.
  std::string AbsentWorkers(const Owner& owner = {}) const;
  // Names of the declared processes that are down: separate schedulers, the first 16 workers, drained ones too, and how
  // many more, and the compiler; empty if none. Actions::presence_changed says when to look again.
  std::string AbsentProcesses() const;
  // Whether one of these workers has not been up since the start.
  bool AwaitsFirstStart() const;
  // Whether one of them is being replaced after its owner's last session, which was not before `since`.
  bool AwaitsReplacement(const Owner& owner, Time since) const;
  // The workers that other owners have claimed, and by which session; empty if none.
  std::string ClaimedByOthers(const Owner& owner) const;
  std::optional<wire::Failure> CheckDrain(const wire::DrainRequest& request) const;

  // Adds the island's workers to the terms of its scheduler.
  void FillTerms(uint32_t island, wire::IslandTerms& terms) const;

  size_t storage_count() const { return storages_.size(); }
  size_t node_count() const { return nodes_.size(); }
  // No node and no compile is under way.
  bool idle() const { return nodes_.empty() && compiles_.size() == 0; }
  size_t spanning_count() const { return sequencer_.size(); }

 private:
  // A run of consecutive shards of one storage.
  struct Run {
    StorageId storage;
    uint32_t first = 0;
    uint32_t count = 0;     // 0: one shard, which the array has dropped
    uint32_t position = 0;  // of its first shard in the array
    ShardRange range() const { return {first, count}; }
  };

  struct Array {
    wire::ArraySpec spec;
    std::vector<Run> runs;     // by position
    bool is_split = false;     // each run is of one shard, since some were dropped alone
    wire::FailureRef failure;  // its own; otherwise its storages' failures apply
  };

  // An await, the shards of a storage that it waits for, and their place among all that it waits for.
  struct Waiter {
    SessionId session;
    uint64_t await = 0;
    Run run;
    uint32_t index = 0;
  };

  struct Storage {
    SessionId session;
    ShardHolds holds{0};  // of arrays (OB-1)
    Ordinal producer;     // node that has not ended; 0 = settled
    std::vector<uint32_t> islands;
    std::vector<DeviceId> devices;
    uint64_t shard_bytes = 0;
    wire::FailureRef failure;  // of all shards
    std::vector<wire::FailureRef>
        lost;  // by shard, of those that a worker took with it; empty: none
    std::vector<Waiter> waiters;
    wire::FailureRef FailureOf(uint32_t shard) const {
      return failure || lost.empty() ? failure : lost[shard];
    }
  };

  struct Executable {
    ExecutableId id;
    uint64_t request = 0;  // the compile that makes it
    std::vector<uint32_t> islands;
    std::vector<DeviceId> devices;
    wire::ExecutableInfo info;  // without the optimized program
    LaunchedProgramRef launched;
    bool ready = false;
  };

  struct AwaitState {
    uint32_t unsettled = 0;
    wire::FailureRef failure;    // the first of the known ones, in the order of the arrays
    uint32_t failure_index = 0;  // its place in that order
    void Note(uint32_t index, const wire::FailureRef& what) {
      if (what == nullptr || (failure != nullptr && failure_index <= index)) return;
      failure = what;
      failure_index = index;
    }
  };

  struct Session {
    std::string name;
    Owner owner;
    absl::flat_hash_map<uint64_t, Array> arrays;
    absl::flat_hash_map<uint64_t, Executable> executables;
    std::map<uint64_t, AwaitState> awaits;
    absl::flat_hash_map<uint64_t, Ordinal> uploads;  // that have not ended
    uint64_t pending = 0;
    uint64_t ended = 0;
    uint64_t ended_reported = 0;
    uint64_t numbered = 0;  // nodes so far
    bool wants_ends = false;
    NodeEnds ends;
  };

  struct Node {
    SessionId session;
    uint64_t number = 0;  // in its session
    std::vector<StorageId> results;
    std::vector<uint32_t> open_islands;
    std::vector<uint32_t>
        unreleased_sources;       // copy: source islands that have not reported Released (GS-4)
    std::vector<size_t> senders;  // copy: workers whose shards go to other islands
    uint64_t fetch = 0;           // the client's number, for fetches
    uint64_t upload = 0;          // the client's number, for uploads
    LaunchedProgramRef launched;  // of a launch
    bool alone = false;           // likewise: no other may run beside it
    wire::FailureRef failure;
  };

  struct DeviceState {
    uint32_t island = 0;
    uint32_t worker = 0;  // index in the island
    uint32_t local = 0;   // index on the worker
    size_t owner = 0;     // index in workers_
  };

  struct WorkerInfo {
    wire::Worker declared;
    uint64_t process_id = 0;
    bool up = false;
    std::optional<wire::Failure> failure;
    google::protobuf::RepeatedPtrField<wire::StuckDevice> stuck;
    bool drained = false;              // by an operator, until undone
    bool leaving = false;              // this incarnation was told to end
    std::optional<uint64_t> replaced;  // the incarnation that is to make room for the next
    Time replaced_at;
    bool draining() const { return drained || leaving; }
    bool absent() const { return !drained && (!up || leaving); }
  };

  struct IslandState {
    bool remote = false;
    bool up = true;
    uint64_t process_id = 0;
    std::map<ExecutableId, wire::Load> loads;  // remote: for its next scheduler
    std::deque<wire::IslandItem> held;         // while it is down, in order; empty while it is up
    std::map<Ordinal, Time> waiting;           // nodes in `held`, since when
  };

  // ops.cc: operations of a session.
  void OnOp(SessionId id, Session& session, wire::Op& op, Time now, Actions& actions);
  void CountRefused(SessionId id, Session& session, const wire::FailureRef& why);
  void OnUpload(SessionId id, Session& session, wire::UploadOp& op, Time now, Actions& actions);
  void OnAbandon(Session& session, wire::AbandonOp& op, Actions& actions);
  void OnCall(SessionId id, Session& session, const wire::CallOp& op, Time now, Actions& actions);
  // The arrays that a call names. Those that it puts together itself belong to this.
  struct Arguments {
    std::vector<const Array*> arrays;
    std::deque<Array> gathered;
  };
  wire::FailureRef FindArguments(const Session& session, const Executable& executable,
                                 const wire::CallOp& op, Arguments& arguments) const;
  wire::FailureRef CheckCall(const Session& session, const Executable& executable,
                             const wire::CallOp& op, Arguments& arguments) const;
  wire::FailureRef CheckLaunch(const Executable& executable, const wire::CallOp& op, Time now);
  wire::FailureRef FindDonated(const Executable& executable, const wire::CallOp& op,
                               const Arguments& arguments, std::vector<uint32_t>& donated) const;
  void OnCopy(SessionId id, Session& session, const wire::CopyOp& op, Time now, Actions& actions);
  wire::FailureRef CheckCopy(const Session& session, uint64_t source, int shards) const;
  void CopyOne(SessionId id, Session& session, const wire::CopyOp& op, int index, Actions& actions);
  void OnFetch(SessionId id, Session& session, const wire::FetchOp& op, Actions& actions);
  void OnAwait(SessionId id, Session& session, const wire::AwaitOp& op, Actions& actions);
  void OnDrop(Session& session, const wire::DropOp& op, bool consume, Actions& actions);
  void OnDropShards(Session& session, const wire::DropShardsOp& op, bool consume, Actions& actions);
  void OnPoison(SessionId id, Session& session, wire::PoisonOp& op, Actions& actions);

  // regroup.cc
  void OnRegroup(SessionId id, Session& session, const wire::RegroupOp& op, Actions& actions);
  wire::FailureRef Regroup(const Session& session, const wire::RegroupOp::Result& result,
                           Array& array) const;
  wire::FailureRef AddShard(const Session& session, const wire::RegroupOp::Shard& shard,
                            Array& array) const;
  // The wanted shards: runs and devices only.
  wire::FailureRef FindWanted(const Session& session, const wire::FetchOp& op, Array& view) const;
  wire::FailureRef FindShard(const Session& session, uint64_t handle, uint32_t shard,
                             Array& view) const;
  wire::FailureRef TakeReplica(const Session& session, uint64_t source, Array& array) const;

  // compile.cc
  void OnCompile(SessionId id, Session& session, wire::CompileOp& op, Time now, Actions& actions);
  std::vector<std::string> WorkersOf(const Executable& executable) const;
  void AddWorkers(const PendingCompile& compile, wire::Failure& failure) const;
  wire::FailureRef PlaceExecutable(const wire::CompileOp& op, Executable& executable,
                                   wire::CompileRequest& request) const;
  bool HasOwnCollectives(DeviceId device) const;
  wire::FailureRef CheckMembers(const Executable& executable) const;
  void OnCompileResult(uint32_t compiler, wire::CompileResult& result, Time now, Actions& actions);
  void Take(CompileActions& compiles, Actions& actions);
  void FailCompile(const PendingCompile& compile, const wire::Failure& failure, Actions& actions);
  void EndCompile(const PendingCompile& compile, wire::Compiled compiled, Actions& actions);
  void OnDropExecutables(SessionId id, Session& session, const wire::DropOp& op, Time now,
                         Actions& actions);

  // arrays.cc: handles, storages, references.
  const Array* FindArray(const Session& session, uint64_t handle) const;
  static wire::FailureRef ConsumedFailure(uint64_t handle);
  static const Run& RunOf(const Array& array, uint32_t shard);
  static void AppendShard(const Array& source, uint32_t shard, Array& array);
  wire::FailureRef CheckUsable(const Session& session, uint64_t handle) const;
  wire::FailureRef FailureOf(const Array& array) const;
  static wire::FailureRef FailureOf(const Storage& storage, const Run& run);
  void LoseShards(const wire::WorkerState& lost);
  bool CanBind(SessionId id, Session& session, uint64_t handle) const;
  void Bind(SessionId id, Session& session, uint64_t handle, Array array, Actions& actions);
  void BindFailure(SessionId id, Session& session, uint64_t handle, wire::FailureRef failure,
                   Actions& actions);
  StorageId NewStorage(SessionId session, const wire::ArraySpec& spec, Ordinal producer);
  void Unbind(Session& session, uint64_t handle, bool consume, Actions& actions);
  void Split(Array& array);
  void Consume(const Run& run, Actions& actions);
  void LetGo(const Run& run, Actions& actions);
  void SendFree(const Storage& storage, StorageId id, const std::vector<ShardRange>& freed,
                Actions& actions);
  static void FillRef(const Array& array, wire::ArrayRef& ref);
  Ordinal NewNode(SessionId session_id, Session& session, std::vector<StorageId> results,
                  std::vector<uint32_t> islands);
  std::vector<uint32_t> IslandsOf(const google::protobuf::RepeatedField<uint32_t>& devices) const;
  std::vector<uint32_t> CrossingSources(const google::protobuf::RepeatedField<uint32_t>& from,
                                        const google::protobuf::RepeatedField<uint32_t>& to) const;
  std::vector<size_t> Senders(const google::protobuf::RepeatedField<uint32_t>& from,
                              const google::protobuf::RepeatedField<uint32_t>& to) const;
  bool CrossesWorkers(const google::protobuf::RepeatedField<uint32_t>& from,
                      const google::protobuf::RepeatedField<uint32_t>& to) const;
  wire::FailureRef CheckDevices(const google::protobuf::RepeatedField<uint32_t>& devices) const;

  // reports.cc: reports from schedulers.
  Ordinal FindProducer(SessionId session, uint64_t handle, wire::WhyReply& reply) const;
  void OnReport(uint32_t island, wire::Report& report, Time now, Actions& actions);
  void OnBrokenBooks(wire::BrokenBooks& broken, Time now, Actions& actions);
  void OnReleased(uint32_t island, Ordinal ordinal, Actions& actions);
  static void Follow(const std::vector<Sequencer::Decision>& decisions, Actions& actions);
  void OnDone(uint32_t island, wire::Done& done, Actions& actions);
  // The first failure counts: it spoils the results, and cancels the node on its open islands.
  void SpoilNode(Ordinal ordinal, Node& node, wire::FailureRef failure, Actions& actions);
  void EndNode(Ordinal ordinal, Actions& actions);
  void OnWorkerState(wire::WorkerState& state, Time now, Actions& actions);
  void BlameLaunches(const wire::WorkerState& lost, Time now, Actions& actions);
  void BlameOrphan(const wire::WorkerState& lost, Time now, Actions& actions);

  // schedulers.cc: schedulers in their own processes.
  void OnSchedulerUp(const SchedulerUp& up, Actions& actions);
  void OnSchedulerDown(const SchedulerDown& down, Time now, Actions& actions);
  void FailIsland(uint32_t island, const wire::Failure& failure, Time now, Actions& actions);
  void OnSchedulerDeadlines(Time now, Actions& actions);
  void HoldBack(Time now, Actions& actions);
  std::string AbsentSchedulers() const;

  // drain.cc
  void OnDrain(const wire::DrainRequest& request);
  void OnLeaving(uint32_t island, const wire::Leaving& leaving, Actions& actions);
  wire::FailureRef CheckOpen(const google::protobuf::RepeatedField<uint32_t>& devices) const;
  wire::FailureRef CheckOpen(const std::vector<DeviceId>& devices) const;
  wire::FailureRef Refusal(DeviceId device) const;

  // isolation.cc: workers that only one owner's sessions may use. Every operation that gives a worker work claims it.
  template <typename Devices>
  wire::FailureRef Claim(SessionId id, const Session& session, const Devices& devices, Time now,
                         Actions& actions);
  wire::FailureRef ForeignClaim(const Owner& owner, DeviceId device, Time now) const;
  void EndClaims(SessionId id, const Owner& owner, Time now, Actions& actions);
  void ReplaceWorker(size_t worker, const Owner& owner, Time now, Actions& actions);
  void AdmitAgain(uint32_t island);
  static std::string ClaimText(const Claims::Claim& claim);
  void FillClaim(size_t worker, Time now, wire::WorkerState& state) const;
  void Settle(StorageId storage, Actions& actions);
  void FinishAwait(SessionId session_id, Session& session, uint64_t await, Actions& actions);
  void ReportProgress(Actions& actions);
  void OnSessionLost(SessionId id, Time now, Actions& actions);

  const ControllerConfig config_;
  absl::flat_hash_map<DeviceId, DeviceState> devices_;
  std::vector<WorkerInfo> workers_;
  std::vector<IslandState> islands_;
  std::map<SessionId, Session> sessions_;
  wire::EndedSessions ended_;
  absl::flat_hash_map<StorageId, Storage> storages_;
  absl::flat_hash_map<Ordinal, Node> nodes_;
  Sequencer sequencer_;
  CompileQueue compiles_;
  Blame blame_;
  Claims claims_;
  std::set<SessionId> progressed_;                            // sessions whose Progress is due
  std::vector<std::pair<uint64_t, Array>> pending_bindings_;  // scratch of OnCall
  bool ending_ = false;                                       // DrainAll
  std::vector<uint64_t> compiler_process_ids_;
  Ordinal next_ordinal_{1};
  uint64_t next_storage_ = 1;
  uint64_t next_executable_ = 1;
  uint64_t next_request_ = 1;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CONTROLLER_H_
