// The input (Event) and output (Action) of the worker's core, as plain data. Devices are local
// indices. The service carries out the actions in the given order; none of them may block it.
#ifndef GANGWAY_WORKER_CORE_ACTIONS_H_
#define GANGWAY_WORKER_CORE_ACTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/core/held.h"

namespace gangway::worker {

struct ShardKey {
  StorageId storage;
  uint32_t shard = 0;
  Held<HeldShards> held;  // of no record: the storage failed before its shards were known

  bool operator==(const ShardKey& other) const {
    return storage == other.storage && shard == other.shard;
  }
};

// --- Events ---

// From the scheduler, in the order of its stream.
struct ItemArrived {
  wire::IslandItem item;
};

// An executable was loaded onto its devices, or failed to load.
struct ExecutableLoaded {
  ExecutableId executable;
  std::optional<wire::Failure> failure;
};

// All bytes of one shard of an upload are staged.
struct UploadShardStaged {
  SessionId session;
  UploadId upload{};
  uint32_t shard = 0;
  uint64_t bytes = 0;
};

// The bytes of an upload were dropped, and no more are taken: for this reason or, where its client sent word that no
// node will use them, because they are not needed.
struct UploadRefused {
  SessionId session;
  UploadId upload{};
  wire::Failure failure;
  bool unwanted = false;
};

// These uploads received bytes since the last such event.
struct UploadsMoved {
  SessionId session;
  std::vector<UploadId> uploads;
};

// All local devices have ended a node after its Run or FillUpload. A fetch names the shards that it
// could not send.
struct NodeEnded {
  Ordinal ordinal;
  std::optional<wire::Failure> failure;
  std::vector<uint32_t> unsent_shards;
};

// A member of a gang has failed while others on this worker may still run. NodeEnded follows.
struct MemberFailed {
  Ordinal ordinal;
  wire::Failure failure;
};

// The service has handled its pending events: the batched reports may be sent.
struct RoundEnded {};

// The worker ends: what waits for shards or for other processes is to end for this reason.
struct Stopping {
  wire::Failure failure;
};

using Event = std::variant<ItemArrived, ExecutableLoaded, UploadShardStaged, UploadRefused,
                           UploadsMoved, NodeEnded, MemberFailed, RoundEnded, Stopping>;

// --- Actions ---

struct LocalShard {
  uint32_t shard = 0;
  int device = 0;
};

// Create the empty slots of a new storage's local shards.
struct CreateStorage {
  StorageId storage;
  SessionId session;
  int32_t element_type = 0;
  std::vector<int64_t> dims;
  uint64_t shard_bytes = 0;
  std::string memory_kind;
  std::vector<LocalShard> shards;
  Held<HeldShards> held;  // to be set
};

struct LaunchPosition {
  uint32_t position = 0;
  int device = 0;
  std::vector<ShardKey> arguments;
};

// Host-side work of a launch (DF-2). Nothing touches a device before Run.
struct PrepareLaunch {
  Ordinal ordinal;
  Held<NodeTask> held;  // to be set, as in the other Prepare actions
  ExecutableId executable;
  Held<ExecutableSlot> held_executable;
  wire::ProgramLabelRef program;
  std::vector<LaunchPosition> positions;
  std::vector<ShardKey> results;  // position i makes shard i of each, whatever the key says
  std::vector<uint32_t> donated;
  uint32_t launch_id = 0;
  uint32_t callback_depth = 0;  // of the host callback that made it; 0: none did
};

// Shards that move between local devices, go to other workers, and come from other workers: at each position of a copy,
// one of each of its arrays, in their order.
struct PrepareCopy {
  struct Move {
    std::vector<ShardKey> from;
    std::vector<ShardKey> to;
    int from_device = 0;
    int to_device = 0;
  };
  struct Send {
    std::vector<ShardKey> from;
    int device = 0;
    uint32_t position = 0;
    DeviceId to_device;
  };
  struct Receive {
    std::vector<ShardKey> to;
    int device = 0;
    uint32_t position = 0;
    DeviceId from_device;
  };
  Ordinal ordinal;
  Held<NodeTask> held;
  SessionId session;
  std::vector<Move> moves;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::string memory_kind;
  std::string token;
};

// Another worker, as the scheduler has described it.
using WorkerRef = std::shared_ptr<const wire::Worker>;

// The workers that send the shards which a prepared copy receives, in the order of its receives. Null: it is gone, or
// not known.
struct NamePeers {
  Ordinal ordinal;
  Held<NodeTask> held;
  std::vector<WorkerRef> workers;
};

// End a released copy's transfers to and from other workers. It still ends with NodeEnded.
struct CancelTransfers {
  Ordinal ordinal;
  Held<NodeTask> held;
  wire::Failure failure;
};

// End the waits of a released launch for its members on other workers, and those that are yet to begin. It still ends
// with NodeEnded.
struct CancelLaunch {
  Ordinal ordinal;
  Held<NodeTask> held;
  wire::Failure failure;
};

// Another worker has started, or has ended (incarnation 0).
struct UpdatePeer {
  WorkerRef worker;
};

// Shards whose bytes came with their node.
struct PreparePut {
  struct Part {
    ShardKey to;
    int device = 0;
    std::string bytes;
  };
  Ordinal ordinal;
  Held<NodeTask> held;
  SessionId session;
  std::vector<Part> parts;
};

struct PrepareFetch {
  struct Part {
    ShardKey from;
    int device = 0;
    uint32_t shard = 0;  // its number in the chunks
  };
  Ordinal ordinal;
  Held<NodeTask> held;
  SessionId session;
  FetchId fetch;
  std::vector<Part> parts;
};

// Queue a prepared node on its devices, behind all earlier ones (GS-1). Ends with NodeEnded.
struct Run {
  Ordinal ordinal;
  Held<NodeTask> held;
  OrderPosition order_position;
};

// A prepared node will never run, or has ended. `order_position` is 0 if it was not released.
struct Discard {
  Ordinal ordinal;
  Held<NodeTask> held;
  OrderPosition order_position;
};

// No node runs here at this position in the island's order: it was released, and this worker does not have it, or could
// not prepare it.
struct SkipPosition {
  OrderPosition order_position;
};

// Create the buffers of a released upload whose bytes are all staged, in a storage that has shards here. Ends with
// NodeEnded.
struct FillUpload {
  Ordinal ordinal;
  SessionId session;
  UploadId upload{};
  StorageId storage;
  Held<HeldShards> held;
};

// Drop the staged bytes of an upload, and those that still arrive.
struct DropUpload {
  SessionId session;
  UploadId upload{};
};

// Poison all local shards of a storage together.
struct PoisonStorage {
  StorageId storage;
  Held<HeldShards> held;
  wire::Failure failure;
};

// Tell the session's client that these shards will not arrive.
struct FailFetch {
  SessionId session;
  FetchId fetch;
  std::vector<uint32_t> shards;
  wire::Failure failure;
};

struct DropStorage {
  StorageId storage;
  Held<HeldShards> held;
};

// Free these shards of a storage that keeps others.
struct DropShards {
  StorageId storage;
  Held<HeldShards> held;
  std::vector<uint32_t> shards;  // ascending
};

// Ends with ExecutableLoaded. `devices` in the order of the logical positions, all local; with `positions`, the local
// ones among them, each of which runs the executable, which is for one position.
struct LoadExecutable {
  ExecutableId executable;
  Held<ExecutableSlot> held;  // to be set
  std::string name;
  std::string serialized;
  std::vector<int> devices;
  bool has_collectives = false;
  bool calls_host = false;
  SessionId session;
  std::optional<wire::Positions> positions;
  // With positions and collectives: the device of each position, and the workers of these devices that are known.
  std::vector<DeviceId> position_devices;
  std::vector<WorkerRef> members;
};

struct UnloadExecutable {
  ExecutableId executable;
  Held<ExecutableSlot> held;
};

// Close the session's data streams and drop their staged bytes.
struct EndStreams {
  SessionId session;
};

// Report the devices' memory use, echoing `probe`.
struct ReportUsage {
  uint64_t probe = 0;
};

struct SendReports {
  wire::ReportBatch batch;
};

// Log an unexpected event that the core has handled.
struct LogWarning {
  std::string text;
};

using Action = std::variant<CreateStorage, PrepareLaunch, PrepareCopy, NamePeers, CancelTransfers,
                            CancelLaunch, UpdatePeer, PreparePut, PrepareFetch, Run, Discard,
                            SkipPosition, FillUpload, DropUpload, PoisonStorage, FailFetch,
                            DropStorage, DropShards, LoadExecutable, UnloadExecutable, EndStreams,
                            ReportUsage, SendReports, LogWarning>;

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_ACTIONS_H_
