// The worker as a pure state machine: it keeps the nodes that wait, run or have failed, and passes each event on to
// what else it keeps: its devices and the island's other workers (`Fleet`), programs (`Executables`), storages
// (`Storages`) and uploads (`Uploads`). It has no threads, clocks, sockets or devices: the service carries out its
// actions.
//
// Rules:
//   * A node's host-side work (CreateStorage, Prepare*) is requested in the Step that brings the
//     node, even before its inputs exist (DF-2). All other work waits for its Release.
//   * Runs are emitted in the order of the Releases (GS-1).
//   * A gang with a failed argument does not run. Its results and its Done get the argument's
//     failure unchanged, so every later reader sees the root cause (ER-1). If a device reports a
//     gang's error before the gang that caused it has ended, the verdict waits for that gang.
//   * Each released node gets one Done; a node that was cancelled before its release gets none. A
//     Cancel of a released node ends a node that waits for others (an upload for its client, a copy
//     or the members of a gang for other workers), and is ignored for a node that ends by itself.
//   * A gang whose members communicate runs among the workers of the island's epoch in which it was sent. If this
//     worker knows of a later one, a member has started or ended since, and the gang is refused.
//   * No message can break the core: a reference to a missing object fails the node (DATA_LOSS).
//
// The core sees only the part of a node on this worker's devices, and keeps no storage without a
// local shard.
#ifndef GANGWAY_WORKER_CORE_WORKER_CORE_H_
#define GANGWAY_WORKER_CORE_WORKER_CORE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/executables.h"
#include "gangway/worker/core/fleet.h"
#include "gangway/worker/core/held.h"
#include "gangway/worker/core/identity.h"
#include "gangway/worker/core/storages.h"
#include "gangway/worker/core/uploads.h"

namespace gangway::worker {

struct Counts {
  size_t storages = 0;
  size_t nodes = 0;
  size_t executables = 0;
  size_t uploads = 0;

  bool operator==(const Counts&) const = default;
};

class WorkerCore {
 public:
  explicit WorkerCore(const Identity& identity);

  std::vector<Action> Step(Event event);

  Counts counts() const;

  // Drops all records and what the service holds for them. After the last Step.
  void Clear();

 private:
  struct Node {
    enum class Kind { kLaunch, kUpload, kCopy, kFetch, kPut };
    Kind kind = Kind::kLaunch;
    bool released = false;
    bool is_sequential = false;  // a launch whose release is reported
    OrderPosition order_position;
    bool prepared = false;  // the service holds a task for it, or fills its upload
    Held<NodeTask> held;
    bool ended = false;  // that task has ended
    SessionId session;
    wire::ProgramLabelRef program;  // of a launch
    std::vector<StorageId> inputs;  // that have local shards which it reads, each once
    std::vector<StorageId> outputs;
    ExecutableId executable;
    std::optional<wire::Failure> failure;
    std::optional<UploadId> upload;  // that it has claimed, and neither filled nor forgotten
    bool transfers = false;          // a copy from or to other workers
    std::vector<DeviceId> sources;   // of a copy's receives, in their order
    FetchId fetch;
    std::vector<uint32_t>
        fetch_shards;  // local ones; once its task has ended, those that it did not send
  };

  // Events.
  void On(ItemArrived& event);
  void On(ExecutableLoaded& event);
  void On(UploadShardStaged& event);
  void On(UploadRefused& event);
  void On(UploadsMoved& event);
  void On(NodeEnded& event);
  void On(MemberFailed& event);
  void On(RoundEnded& event);
  void On(Stopping& event);

  // Items.
  void Open(const wire::OpenDevices& open);
  void OnPeer(wire::Worker& other);
  void Release(Ordinal ordinal, OrderPosition position);
  void Cancel(Ordinal ordinal, const wire::Failure& failure);
  void CancelReleased(Ordinal ordinal, Node& node, const wire::Failure& failure);
  void EndSession(SessionId session);

  // Host-side work (prepare.cc). A failure fails the node, which then adds the node and the worker.
  void Prepare(wire::Node& message);
  std::optional<wire::Failure> PrepareLaunchNode(const wire::Node& message, Node& node);
  std::optional<wire::Failure> PrepareUploadNode(const wire::Node& message, Node& node);
  std::optional<wire::Failure> PreparePutNode(wire::Node& message, Node& node);
  std::optional<wire::Failure> PrepareCopyNode(const wire::Node& message, Node& node);
  std::optional<wire::Failure> PrepareFetchNode(const wire::Node& message, Node& node);
  std::optional<wire::Failure> AddResult(Node& node, CreateStorage result,
                                         const LocalPositions& positions);
  void PoisonResultsOf(const wire::Node& message, Node& node);

  // Ends of nodes.
  std::optional<wire::Failure> FailureBefore(Ordinal ordinal, const Node& node) const;
  void RunNode(Ordinal ordinal, Node& node);
  // After each event that may let the upload's node fill it, or fail.
  void TryFill(const UploadKey& key);
  void Finish(Ordinal ordinal, std::optional<wire::Failure> failure);
  void NoteFailure(Ordinal ordinal, Node& node, wire::Failure failure);
  void SettleFailure(Ordinal ordinal);
  void SettleWaiters();
  void ForgetUpload(Node& node);

  void ReportDone(Ordinal ordinal, const std::optional<wire::Failure>& failure);
  void ReportEnqueued(Ordinal ordinal);
  void ReportLoaded(ExecutableId executable, const std::optional<wire::Failure>& failure);
  template <typename A>
  void HoldTask(Node& node, A prepare) {
    node.prepared = true;
    node.held = Held<NodeTask>::New();
    prepare.held = node.held;
    Emit(std::move(prepare));
  }
  template <typename A>
  void Emit(A action) {
    actions_.emplace_back(std::move(action));
  }

  const Identity identity_;
  Fleet fleet_;
  Executables executables_;
  Storages storages_;
  Uploads uploads_;
  std::unordered_map<Ordinal, Node> nodes_;
  wire::ReportBatch reports_;
  std::vector<Action> actions_;  // of this Step
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_WORKER_CORE_H_
