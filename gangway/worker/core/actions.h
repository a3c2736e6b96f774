// What the worker's core is told (Event) and what it wants done (Action). Plain data; devices are
// local indices. The service carries the actions out in the order given; none of them may block it.
#ifndef GANGWAY_WORKER_CORE_ACTIONS_H_
#define GANGWAY_WORKER_CORE_ACTIONS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::worker {

struct ShardKey {
  uint64_t storage = 0;
  uint32_t shard = 0;

  bool operator==(const ShardKey&) const = default;
};

// ---- Events
// -------------------------------------------------------------------------------------------------------

// From the scheduler, in the order of its stream.
struct ItemArrived {
  wire::IslandItem item;
};

// An executable is on the devices, or could not be put there.
struct ExecutableLoaded {
  uint64_t executable = 0;
  wire::Failure failure;
};

// All bytes of one shard of an upload are staged; or its client gave it up (failure).
struct UploadShardStaged {
  uint64_t session = 0;
  uint64_t upload = 0;
  uint32_t shard = 0;
  uint64_t bytes = 0;
  wire::Failure failure;
};

// Some bytes of these uploads came since the last such event.
struct UploadsMoved {
  uint64_t session = 0;
  std::vector<uint64_t> uploads;
};

// The last data stream of a session is gone: no more upload bytes will come.
struct StreamsGone {
  uint64_t session = 0;
};

// All local devices have ended a node that was Run or Fill. A fetch names the shards that it could
// not send.
struct NodeEnded {
  uint64_t ordinal = 0;
  wire::Failure failure;
  std::vector<uint32_t> unsent_shards;
};

// The service has handled all that it had: the batched reports may go.
struct RoundEnded {};

using Event = std::variant<ItemArrived, ExecutableLoaded, UploadShardStaged, UploadsMoved,
                           StreamsGone, NodeEnded, RoundEnded>;

// ---- Actions
// ------------------------------------------------------------------------------------------------------

struct LocalShard {
  uint32_t shard = 0;
  int device = 0;
};

// Make the empty places of a new storage's local shards.
struct CreateStorage {
  uint64_t storage = 0;
  uint64_t session = 0;
  int32_t element_type = 0;
  std::vector<int64_t> dims;
  uint64_t shard_bytes = 0;
  std::string memory_kind;
  std::vector<LocalShard> shards;
};

struct LaunchPosition {
  uint32_t position = 0;
  int device = 0;
  std::vector<ShardKey> arguments;
};

// Host-side work of a launch (DF-2). Nothing touches a device before Run.
struct PrepareLaunch {
  uint64_t ordinal = 0;
  uint64_t executable = 0;
  wire::ProgramLabelRef program;
  std::vector<LaunchPosition> positions;
  std::vector<uint64_t> results;  // storages; position i makes shard i of each
  std::vector<uint32_t> donated;
  uint32_t launch_id = 0;
};

// Shards that move here, that leave for other workers, and that come from others.
struct PrepareCopy {
  struct Move {
    ShardKey from;
    ShardKey to;
    int from_device = 0;
    int to_device = 0;
  };
  struct Send {
    ShardKey from;
    int device = 0;
    uint32_t shard = 0;      // of the copy
    uint32_t to_device = 0;  // global id
  };
  struct Receive {
    ShardKey to;
    int device = 0;
    uint32_t from_device = 0;  // global id; the shard of the copy is that of `to`
  };
  uint64_t ordinal = 0;
  std::vector<Move> moves;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::string memory_kind;
  std::string token;
};

// Whom to ask for the shards that a prepared copy receives.
struct NamePeers {
  uint64_t ordinal = 0;
  std::vector<wire::Worker> workers;
};

// A released copy gives up what it waits for from other workers. Still ends with NodeEnded.
struct CancelTransfers {
  uint64_t ordinal = 0;
  wire::Failure failure;
};

struct PrepareFetch {
  struct Part {
    ShardKey from;
    int device = 0;
    uint32_t shard = 0;  // what the chunks call it
  };
  uint64_t ordinal = 0;
  uint64_t session = 0;
  uint64_t fetch = 0;
  std::vector<Part> parts;
};

// A prepared node goes: put it in the queues of its devices, behind all earlier ones (GS-1). Ends
// with NodeEnded.
struct Run {
  uint64_t ordinal = 0;
};

// A prepared node will never run.
struct Discard {
  uint64_t ordinal = 0;
};

// A released upload whose bytes are all staged: make its buffers. Ends with NodeEnded.
struct FillUpload {
  uint64_t ordinal = 0;
  uint64_t session = 0;
  uint64_t upload = 0;
  uint64_t storage = 0;
};

// Forget the staged bytes of an upload, and drop those that still come.
struct DropUpload {
  uint64_t session = 0;
  uint64_t upload = 0;
};

// Spoil all local shards of a storage, together.
struct PoisonStorage {
  uint64_t storage = 0;
  wire::Failure failure;
};

// Tell the session's client that these shards will not come.
struct FailFetch {
  uint64_t session = 0;
  uint64_t fetch = 0;
  std::vector<uint32_t> shards;
  wire::Failure failure;
};

struct DropStorage {
  uint64_t storage = 0;
};

// Ends with ExecutableLoaded. `devices` in the order of the logical positions, all local.
struct LoadExecutable {
  uint64_t executable = 0;
  std::string name;
  std::string serialized;
  std::vector<int> devices;
};

struct UnloadExecutable {
  uint64_t executable = 0;
};

// Close the session's data streams and forget what they staged.
struct EndStreams {
  uint64_t session = 0;
};

// Report what the devices hold, with this echo.
struct ReportUsage {
  uint64_t probe = 0;
};

struct SendReports {
  wire::ReportBatch batch;
};

// For the log: something that should not happen and was dealt with.
struct Complain {
  std::string text;
};

using Action = std::variant<CreateStorage, PrepareLaunch, PrepareCopy, NamePeers, CancelTransfers,
                            PrepareFetch, Run, Discard, FillUpload, DropUpload, PoisonStorage,
                            FailFetch, DropStorage, LoadExecutable, UnloadExecutable, EndStreams,
                            ReportUsage, SendReports, Complain>;

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_CORE_ACTIONS_H_
