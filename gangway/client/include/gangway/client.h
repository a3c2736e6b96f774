// The client library: one session with a Gangway cluster.
//
// No operation waits for the cluster: the library chooses handles, calls return at once, and errors
// stick to the arrays that they spoil and return from Await and Fetch (ER-1). The calls of one
// thread reach the cluster in their order, and a later call sees the effects of earlier ones. The
// library flushes batches itself.
//
// Threading: thread-safe. Callbacks run one at a time on the client's own event loop: on the loop's
// thread, or on a thread in Wait::For, which then stands in for it. They may call the client
// but must not block. Destroying the client ends the session: everything that it owned is freed
// (OB-2); pending callbacks run with CANCELLED first.
#ifndef GANGWAY_CLIENT_H_
#define GANGWAY_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "status.h"

namespace gangway {

// Numbers that name things of a session, as types that do not mix: ArrayHandle(7) is the array of number 7, and
// static_cast<uint64_t>(array) its number. ArrayHandle() names none.
enum class ArrayHandle : uint64_t;
enum class ExecutableHandle : uint64_t;
enum class ProgramHandle : uint64_t;
enum class OperationId : uint64_t;  // a Call, Put, Copy, Upload or launch of a program

// What a backend plugin says of itself, such as the versions of StableHLO that it reads, or of its devices.
struct PluginAttribute {
  std::string name;
  std::variant<std::string, int64_t, std::vector<int64_t>, float, bool> value;
};

struct DeviceInfo {
  uint32_t id = 0;  // global, from the declared topology
  uint32_t island = 0;
  uint32_t worker = 0;                      // index in the island
  uint32_t index = 0;                       // on the worker
  std::string kind;                         // as the backend plugin reports it
  std::vector<PluginAttribute> attributes;  // likewise, such as the compute capability of a GPU
};

struct ClusterInfo {
  std::string platform;  // "cpu", "cuda", "tpu"
  std::string platform_version;
  std::vector<DeviceInfo> devices;  // by id
  uint64_t epoch = 0;
  uint64_t session = 0;
  std::vector<PluginAttribute> attributes;  // what all workers' plugins say of themselves
  // The declared workers that were down when the session began, with their devices, for people. The session has none of
  // these devices, also when the workers are back.
  std::vector<std::string> absent;
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

// What is known about a compiled function before it runs. Sizes are bytes per device.
struct ExecutableInfo {
  std::string name;
  std::string fingerprint;
  std::vector<TensorSpec> parameters;
  std::vector<TensorSpec> results;
  std::vector<uint32_t> donated;  // parameter indices
  uint64_t argument_bytes = 0, output_bytes = 0, temp_bytes = 0, alias_bytes = 0, code_bytes = 0;
  std::vector<std::pair<std::string, double>> cost;
  std::string optimized_program;  // serialized HloModuleProtoWithConfig
  bool calls_host = false;        // it calls functions of its client (HostFunctions)
  // Not empty: the program was not compiled, and nothing else is set, since its client has to say first how its calls
  // are partitioned (xla/sharded_calls.proto).
  std::string asks;
};

// A shard of an existing array.
struct ShardOf {
  ArrayHandle array{};
  uint32_t shard = 0;
};

// Memory of one device as its island's scheduler counts it, of all sessions.
struct DeviceMemory {
  uint32_t device = 0;  // global id
  uint64_t bytes = 0;
  uint64_t peak_bytes = 0;   // since the scheduler started
  uint64_t limit_bytes = 0;  // 0: none
};

// One run of a program of this session on one device. Times are of this host's steady clock.
struct DeviceRun {
  uint32_t device = 0;
  std::string program;
  uint64_t gang = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// What the flight recorders of the cluster still hold of this session.
struct SessionProfile {
  std::vector<DeviceRun> runs;
  std::vector<std::string> missing;  // processes that did not answer in time
};

using UsageCallback = std::function<void(Result<std::vector<DeviceMemory>>)>;
using ProfileCallback = std::function<void(Result<SessionProfile>)>;
using StatusCallback = std::function<void(Status)>;

// An argument that is put together for one call: shards[i] is for logical position i, on its device.
struct GatheredArgument {
  uint32_t index = 0;  // among the arguments, where the array is 0
  std::vector<ShardOf> shards;
};

struct CallOptions {
  std::span<const uint32_t> keep;  // indices of arguments that must not be donated
  std::span<const GatheredArgument> gathered;
  uint32_t launch_id = 0;
  StatusCallback ended;  // see Client::reports_ends
};

// What became of the operations between BeginProgram and EndProgram.
struct ProgramCapture {
  uint64_t launches = 0;  // each of which stood for all operations of a run
  uint64_t operations_sent_as_they_came = 0;
  // What first ended a run before EndProgram: an operation that needs an answer, or that has bytes, by its name, "a
  // wait" or a limit. Empty: nothing.
  std::string cut_by;
};

using CompileCallback = std::function<void(Result<std::shared_ptr<const ExecutableInfo>>)>;

// Receives the bytes of a fetch. Calls come in any order of shards, on the client's loop.
struct FetchSink {
  // `data` goes to `offset` of the dense, row-major bytes of shards[index] of the request. Valid
  // during the call.
  std::function<void(size_t index, uint64_t offset, std::string_view data)> on_data;
  // Called instead of on_data with all bytes of shards[index], in memory that the worker shares
  // with this process. Dropping the last reference returns the memory, on any thread, also after
  // the Client's end; until then it counts against the session's limit of such memory. If empty,
  // all bytes come through on_data.
  std::function<void(size_t index, std::shared_ptr<const char> bytes, size_t size)> on_place;
  std::function<void(Status)> on_done;  // last, exactly once
  // The fetch, of one shard, may become one operation with others from the same worker that are submitted just before
  // or after it: its bytes then come no sooner than the others are ready, and what fails one fails all. For small
  // arrays that are ready; one that fails may be fetched again without this. Such a fetch may be held as long as a call
  // (Client::SendNow), any other for some 100 us.
  bool may_join = false;
};

// Functions of this process that programs may call, by the numbers that the programs name; number 0 is called when a
// worker is lost, and when one is back. `operands` are dense and row-major, and valid during the call; so are the
// results. The status of a failed call reaches the caller of the program, with its text.
using HostFunctions = std::function<Result<std::vector<std::string>>(
    uint64_t function, std::span<const std::string_view> operands)>;

// One thread's wait for what a callback tells. Over a unix socket that thread reads the answers itself, and runs the
// client's callbacks, so that the answer wakes no second thread: waiting this way takes less time than a condition
// variable that a callback notifies. Of several threads that wait, one reads.
class Wait {
 public:
  virtual ~Wait() = default;
  // To be called when what is waited for has come: by a callback, or by any other thread, at any time, also after the
  // client's end. Again: no effect.
  virtual void End() = 0;
  // Waits until End, at most for `limit`; whether it came. One thread at a time, not in a callback, which would wait
  // for itself and returns at once. Do not hold a lock that a callback of this client takes.
  virtual bool For(std::chrono::nanoseconds limit) = 0;
};

class Client {
 public:
  virtual ~Client() = default;

  virtual const ClusterInfo& cluster() const = 0;

  virtual ArrayHandle NewArrayHandle() = 0;

  // Every method also accepts handles chosen elsewhere (a front door's own client numbers them).
  // The two ranges must not overlap: NewArrayHandle returns numbers from 2^62 on.

  // Compiles for logical positions 0..n-1, position i on devices[i]. `options` is a serialized
  // xla.CompileOptionsProto, whose device assignment is ignored; empty: a replica on each device.
  // The handle may be used in Call once `done` ran with success. Errors: INVALID_ARGUMENT with the
  // compiler's own text; UNIMPLEMENTED if a program cannot span the devices' workers, which it
  // names; UNAVAILABLE if the compiler died during this compile.
  virtual ExecutableHandle Compile(std::string program, std::string format, std::string options,
                                   std::vector<uint32_t> devices, CompileCallback done) = 0;
  virtual void DropExecutables(std::span<const ExecutableHandle> executables) = 0;

  // Whether the session is told of the end of every operation. Then `ended` of Call, Put, Upload and Copy
  // runs once, with the failure that spoiled the results, without a message of its own; otherwise it
  // must be empty. What a lost worker takes later is not in it: see losses().
  virtual bool reports_ends() const = 0;

  // A look asks for ends as soon as they come: a thread waits for one, or a callback is to run at once. Without any,
  // `ended` runs up to 10 ms late, unless the operation has failed, and many operations cost fewer messages.
  //
  // Something looks for the end of every operation, from BeginLook until EndLook. Such looks are counted, and a session
  // starts with one, its caller's. Threads may end a look that another is about to begin.
  virtual void BeginLook() = 0;
  virtual void EndLook() = 0;
  // Something looks for the end of `operation`, of a copy of several arrays for that of the last one, until it comes;
  // nothing happens if it has come, or there is no such operation. Otherwise it sends what was submitted, too. While
  // many earlier operations are under way, only this end is told at once, with those that came before it: cheaper than
  // a look for every one.
  virtual void LookFor(OperationId operation) = 0;

  // Workers that were lost since the session began. Await asks again what is good.
  virtual uint64_t losses() const = 0;

  // Makes `array` of its bytes: shards[i], one for each device or it fails with INVALID_ARGUMENT, dense and row-major,
  // copied before the call returns. Those of small arrays travel with the declaration (while few are under way): calls
  // that read them wait for nothing else, and arrays put one after the other onto the same devices cost little more.
  virtual OperationId Put(ArrayHandle array, const ArraySpec& spec,
                          std::span<const std::string_view> shards,
                          StatusCallback ended = nullptr) = 0;

  // Declares `array`; its bytes follow with Push, in any order of shards, to this operation.
  virtual OperationId Upload(ArrayHandle array, const ArraySpec& spec,
                             StatusCallback ended = nullptr) = 0;

  // Sends all bytes of one shard of an upload, dense and row-major. `data` stays valid and unchanged
  // until `released` is called, on any thread, perhaps on the caller's before Push returns: do not
  // hold a lock that `released` takes. Each shard is pushed once: a repeated shard or a wrong size
  // fails the rest of the upload with INVALID_ARGUMENT.
  virtual void Push(OperationId upload, uint32_t shard, std::string_view data,
                    std::function<void()> released) = 0;

  // Requests memory of the shard's worker before the bytes exist, if this process can share it. A
  // push whose bytes are already in that memory does not copy them. `placed` receives the memory at
  // most once, on the client's loop; it does not run if the worker grants none or the push came
  // first. The memory stays valid while referenced, but a later push may still copy its bytes.
  virtual void Reserve(OperationId upload, uint32_t shard,
                       std::function<void(std::shared_ptr<char> place)> placed) = 0;

  // Gives up the upload: the missing shards spoil the array with `why`.
  virtual void AbandonUpload(OperationId upload, Status why) = 0;

  // Runs `executable`: one gang, all devices or none. The shards of arguments that the program
  // donates are consumed unless the argument is to be kept. The call itself never fails: unknown,
  // freed or foreign arguments spoil the results.
  virtual OperationId Call(ExecutableHandle executable, std::span<const ArrayHandle> arguments,
                           std::span<const ArrayHandle> results, CallOptions options = {}) = 0;

  // results[k] gets the shards of sources[k], shard i on devices[i]. `ended` runs once for all;
  // the operation's number is that of the last array.
  virtual OperationId Copy(std::span<const ArrayHandle> sources,
                           std::span<const ArrayHandle> results, std::span<const uint32_t> devices,
                           const std::string& memory_kind, StatusCallback ended = nullptr) = 0;

  // An array of Regroup.
  struct Regrouped {
    ArrayHandle array{};
    std::vector<ShardOf> shards;
    // Instead of shards: the first shard that is not lost of this replicated array.
    ArrayHandle replica_of{};
  };
  // Makes arrays that share shards of others: views, disassembly, assembly, permutation. Moves no
  // bytes.
  virtual void Regroup(std::vector<Regrouped> results) = 0;

  // Between the two, the library holds calls, copies, regroups and drops of the session, whichever thread makes them,
  // and sends them as one run, or as one operation that launches it if such a run came before: the same operations in
  // the same order, on whatever arrays. The first run of its kind tells the controller of it; until the controller has
  // accepted it, and if it does not, runs are sent as they came. Another operation, a wait (SendNow, LookFor,
  // BeginLook) and 4,096 operations or 4 MiB of them end a run, and the next one begins. Operations have the same
  // numbers, and end one by one, as without this. Pairs nest: only the outermost matters, and the inner EndProgram
  // returns nothing. Without BeginProgram, EndProgram does nothing.
  virtual void BeginProgram() = 0;
  virtual ProgramCapture EndProgram() = 0;

  // Fetches the bytes of the named shards of `array`, once it is ready.
  virtual void Fetch(ArrayHandle array, std::vector<uint32_t> shards, FetchSink sink) = 0;

  // Sends what was submitted. The library does so by itself, but may hold a burst of operations back
  // to send them together: for some 100 us, or for 300 us after many that nothing has waited for, in
  // a session that does not look for every end. Call this before a wait for one of them; LookFor and
  // Await do it, too.
  virtual void SendNow() = 0;

  // A wait for one of this client's callbacks; its For is called before the client's end.
  virtual std::shared_ptr<Wait> NewWait() = 0;

  // Calls `done` when all arrays are ready, or with the first failure among them in their order (an
  // Status that carries the whole failure record: see wire/failure.h). Unknown handles:
  // INVALID_ARGUMENT.
  virtual void Await(std::span<const ArrayHandle> arrays, StatusCallback done) = 0;

  // Drops handles. Unknown or consumed ones are allowed.
  virtual void Drop(std::span<const ArrayHandle> arrays) = 0;

  // Like Drop, but frees the shards for every array that shares them.
  virtual void Delete(std::span<const ArrayHandle> arrays) = 0;

  // Drops one shard of an array of `shard_count`, each at most once. Its memory is free soon; the
  // array can be used shard by shard from now on. The last shard takes the handle with it.
  virtual void DropShard(ShardOf shard, uint32_t shard_count) = 0;

  // Makes arrays that hold the error `why` from the start.
  virtual void Poison(std::span<const ArrayHandle> arrays, const Status& why) = 0;

  // Runs `functions` when programs call them (device/pjrt/host_call.h), on threads that may block and may use the
  // client. Calls begin in the order in which they come; a call that comes during another one begins after it, or
  // 100 ms after that one began. A call that does not return within the worker's limit fails its program.
  virtual void ServeHostCallbacks(HostFunctions functions) = 0;

  // Nodes submitted but not ended. TM-2: a front door stops reading its client's session while this
  // is at or above pending_max(); `on_room` runs once it is below.
  virtual uint64_t pending() const = 0;
  virtual uint64_t pending_max() const = 0;
  virtual void WhenRoom(std::function<void()> on_room) = 0;

  // The memory of all devices whose schedulers answer within 2 s. `done` runs within 5 s. Requests
  // that come while one is under way share its answer.
  virtual void Usage(UsageCallback done) = 0;

  // The runs of this session's programs. `done` runs within 10 s. RESOURCE_EXHAUSTED: a
  // profile is under way already.
  virtual void Profile(ProfileCallback done) = 0;

  // `lost` runs once if the session is lost (the controller is gone). Everything pending ends with
  // UNAVAILABLE.
  virtual void OnLost(StatusCallback lost) = 0;
};

}  // namespace gangway

#endif  // GANGWAY_CLIENT_H_
