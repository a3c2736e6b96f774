// The client library: one session with a Gangway cluster.
//
// Everything is submitted without waiting: handles are chosen here, calls return at once, errors
// stick to the arrays that they spoil and come back from Await and Fetch (ER-1). Calls made by one
// thread reach the cluster in that order; what was submitted earlier is seen by what comes later.
// Batches are flushed by the library itself.
//
// Threading: thread-safe. Callbacks run one at a time on the client's own event loop; they may call
// the client, must not block. Destroying the client ends the session: everything that it owned is
// freed (OB-2); callbacks that have not come are called with CANCELLED first.
#ifndef GANGWAY_CLIENT_H_
#define GANGWAY_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway {

using ArrayHandle = uint64_t;  // 0 = none; never reused in a session
using ExecutableHandle = uint64_t;

struct DeviceInfo {
  uint32_t id = 0;  // global, from the declared topology
  uint32_t island = 0;
  uint32_t worker = 0;  // index in the island
  uint32_t index = 0;   // on the worker
  std::string kind;     // as the backend plugin reports it
};

struct ClusterInfo {
  std::string platform;  // "cpu", "cuda", "tpu"
  std::string platform_version;
  std::vector<DeviceInfo> devices;  // by id
  uint64_t epoch = 0;
  uint64_t session = 0;
};

// Shards of one array: the same element type (XLA PrimitiveType number) and dims everywhere; shard
// i is on devices[i].
struct ArraySpec {
  int32_t element_type = 0;
  std::vector<int64_t> shard_dims;
  std::vector<uint32_t> devices;
  std::string memory_kind;   // "" = device
  uint64_t shard_bytes = 0;  // dense, row-major
};

struct TensorSpec {
  int32_t element_type = 0;
  std::vector<int64_t> shard_dims;
  uint64_t shard_bytes = 0;
  std::string memory_kind;
};

// What is known of a compiled function before it has run. Sizes in bytes per device.
struct ExecutableInfo {
  std::string name;
  std::string fingerprint;
  std::vector<TensorSpec> parameters;
  std::vector<TensorSpec> results;
  std::vector<uint32_t> donated;  // parameter indices
  uint64_t argument_bytes = 0, output_bytes = 0, temp_bytes = 0, alias_bytes = 0, code_bytes = 0;
  std::vector<std::pair<std::string, double>> cost;
  std::string optimized_program;  // serialized HloModuleProtoWithConfig
};

// A shard of an existing array.
struct ShardOf {
  ArrayHandle array = 0;
  uint32_t shard = 0;
};

using StatusCallback = std::function<void(absl::Status)>;
using CompileCallback = std::function<void(absl::StatusOr<std::shared_ptr<const ExecutableInfo>>)>;

// Receives the bytes of a fetch. Calls come in any order of shards, on the client's loop.
struct FetchSink {
  // `data` goes to `offset` of the dense, row-major bytes of shards[index] of the request. Valid
  // during the call.
  std::function<void(size_t index, uint64_t offset, std::string_view data)> on_data;
  // Instead, all bytes of shards[index] in memory that its worker shares with this process. The
  // last reference gives it back, on any thread, also after the Client's end; until then it counts
  // against what this session may hold of it. Empty: all bytes come through on_data.
  std::function<void(size_t index, std::shared_ptr<const char> bytes, size_t size)> on_place;
  std::function<void(absl::Status)> on_done;  // last, exactly once
};

class Client {
 public:
  virtual ~Client() = default;

  virtual const ClusterInfo& cluster() const = 0;

  virtual ArrayHandle NewArrayHandle() = 0;

  // Accepts handles made elsewhere (a front door's own client numbers them): both ranges must not
  // overlap; NewArrayHandle gives numbers from 2^62 on.

  // Compiles for logical positions 0..n-1, position i on devices[i]. `options`: serialized
  // xla.CompileOptionsProto, its device assignment ignored. The handle may be used in Call once
  // `done` was called with success. Errors: INVALID_ARGUMENT the compiler's own text; UNIMPLEMENTED
  // devices on several workers, naming them; UNAVAILABLE the compiler died while it compiled this.
  virtual ExecutableHandle Compile(std::string program, std::string format, std::string options,
                                   std::vector<uint32_t> devices, CompileCallback done) = 0;
  virtual void DropExecutables(std::span<const ExecutableHandle> executables) = 0;

  // Declares `array`; its bytes follow with Push, in any order among shards. Returns the name for
  // Push.
  virtual uint64_t Upload(ArrayHandle array, const ArraySpec& spec) = 0;

  // Bytes of shards of an upload, dense and row-major. `data` stays valid and unchanged until
  // `released` is called (on any thread). A shard index may be listed several times in an upload
  // only by distinct pushes of distinct shards.
  virtual void Push(uint64_t upload, uint32_t shard, std::string_view data,
                    std::function<void()> released) = 0;

  // Asks for memory of the shard's worker, where this process can share it, ahead of the bytes:
  // those that lie there when they are pushed are not copied again. `placed` is called with it at
  // most once, on the client's loop; never where there is none, or the bytes were pushed before.
  // The memory stays valid for as long as it is referred to; only its use may be in vain.
  virtual void Reserve(uint64_t upload, uint32_t shard,
                       std::function<void(std::shared_ptr<char> place)> placed) = 0;

  // The bytes will never come: spoils the array with `why`.
  virtual void AbandonUpload(uint64_t upload, absl::Status why) = 0;

  // Runs `executable`: one gang, all devices or none. Arguments that the program donates are
  // consumed unless their index is in `keep`. Never fails here: unknown, freed or foreign arguments
  // spoil the results.
  virtual void Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                    std::span<const ArrayHandle> results, std::span<const uint32_t> keep = {},
                    uint32_t launch_id = 0) = 0;

  // results[k] gets the shards of sources[k], shard i on devices[i].
  virtual void Copy(std::span<const ArrayHandle> sources, std::span<const ArrayHandle> results,
                    std::span<const uint32_t> devices, const std::string& memory_kind) = 0;

  // New arrays that share shards of others: views, disassembly, assembly, permutation. Nothing is
  // moved.
  struct Regrouped {
    ArrayHandle array = 0;
    std::vector<ShardOf> shards;
  };
  virtual void Regroup(std::vector<Regrouped> results) = 0;

  // Bytes of the named shards of `array`, once it is there.
  virtual void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) = 0;

  // Calls `done` when all arrays are there, or with the first failure among them in their order (an
  // absl::Status that carries the whole failure record: see wire/failure.h). Unknown handles:
  // INVALID_ARGUMENT.
  virtual void Await(std::span<const ArrayHandle> arrays, StatusCallback done) = 0;

  // Gives handles back. Unknown or consumed ones are fine.
  virtual void Drop(std::span<const ArrayHandle> arrays) = 0;

  // As Drop, but frees the shards for every array that shares them.
  virtual void Delete(std::span<const ArrayHandle> arrays) = 0;

  // Makes arrays that are errors from the start.
  virtual void Poison(std::span<const ArrayHandle> arrays, const absl::Status& why) = 0;

  // Nodes submitted and not ended. TM-2: a front door stops reading its client's session while this
  // is at or above pending_max(), and is told by `on_room` when there is room again.
  virtual uint64_t pending() const = 0;
  virtual uint64_t pending_max() const = 0;
  virtual void WhenRoom(std::function<void()> on_room) = 0;

  // Called once if the session is lost (controller gone): everything pending ends with UNAVAILABLE.
  virtual void OnLost(StatusCallback lost) = 0;
};

}  // namespace gangway

#endif  // GANGWAY_CLIENT_H_
