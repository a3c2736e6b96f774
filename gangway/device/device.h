// The device interface: what a worker or the compiler needs from one opened device runtime (a PJRT
// plugin, or a simulated accelerator). Buffers are futures: an executable may be enqueued on
// buffers whose contents are still pending.
//
// Threading: every method may be called from any thread. The caller must keep two rules:
//   * One thread at a time calls Executable::ExecuteOn for a device. Where
//     Capabilities::executes_inline is set, a small program runs inside ExecuteOn, so a collective
//     in it blocks that thread until the peers arrive: such a thread does nothing else.
//   * At most Capabilities::inflight_max executes per device are between ExecuteOn and their
//     on_complete. A further execute blocks its caller until one finishes; a caller that also fills
//     placeholders then deadlocks.
// Callbacks (StatusCallback) run exactly once, on a thread of the runtime or inside the call that
// registers them. They must not block, must not throw and must not destroy the Backend. They may
// create, use and drop buffers.
//
// Ownership: the Backend outlives everything that it creates, but for pinned memory. A Buffer or an Executable may be
// dropped at any time, even while enqueued work reads it: the runtime keeps the memory until that
// work is done.
//
// Failure: a call that returns an error had no effect and runs no callback. Asynchronous errors
// reach the callbacks and poison the output buffers, and the outputs of every run that reads those.
//
// Element types are the wire numbers of XLA's PrimitiveType (pred 1, s8 2, ..., f32 11, bf16 16):
// element_type.h. Host bytes are dense and row-major, one byte or more per element (a 4-bit type
// takes a byte per element).
#ifndef GANGWAY_DEVICE_DEVICE_H_
#define GANGWAY_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::device {

using StatusCallback = std::function<void(absl::Status)>;

// What a runtime says of itself, such as the versions of StableHLO that it reads.
struct Attribute {
  std::string name;
  std::variant<std::string, int64_t, std::vector<int64_t>, float, bool> value;
};

struct Capabilities {
  std::string platform;          // "cpu", "cuda", "tpu", "sim"
  std::string platform_version;  // as the runtime reports it; part of the compile cache's key
  std::string api_version;       // "PJRT C API 0.81", "sim 1"
  std::vector<Attribute> attributes;
  // Executes in flight per device, running or waiting for inputs, before ExecuteOn blocks its
  // caller.
  int inflight_max = 32;
  // Of what it compiles: HLO, or programs that declare themselves what they compute and what their collectives are.
  enum class Programs : uint8_t { kHlo, kDeclared };
  Programs programs = Programs::kHlo;
  // ExecuteOn may run the program in its caller's thread.
  bool executes_inline = false;
  // Of programs with the runtime's own collectives.
  struct Collectives {
    // Each device blocks a thread that other programs need, too (XLA CPU): a worker then admits one such gang to a
    // device at a time.
    bool block_threads = false;
    // They run one at a time in a process, in the order in which they arrive, also on disjoint devices (XLA CPU since
    // some version after PJRT C API 0.81).
    bool take_turns = false;
  };
  Collectives collectives;
  // BufferFromHost with HostSemantics::kZeroCopy uses the caller's memory without a copy.
  bool host_zero_copy = false;
  // Which handlers RegisterFfiHandlers takes: those that read and write host memory, or those that get addresses of
  // device memory and the device's stream (CUDA).
  enum class FfiHandlers : uint8_t { kNone, kHostMemory, kDeviceMemory };
  FfiHandlers ffi_handlers = FfiHandlers::kNone;
  // ExecuteOn returns only when its arguments are filled or failed (CUDA), so the thread that calls it fills none.
  bool execute_waits_for_arguments = false;
  // PinHostMemory makes transfers faster.
  bool pins_host_memory = false;
};

struct DeviceInfo {
  int local_index = 0;  // 0 .. devices().size() - 1: every call here names a device by it
  int64_t runtime_id = 0;
  std::string kind;
  std::vector<std::string> memory_kinds;  // the first one is the default
  std::vector<Attribute> attributes;      // such as the compute capability of a GPU
  uint64_t memory_bytes = 0;  // that programs and arrays may take; 0: the runtime does not say
};

// Element type and dimensions of one array on one device.
struct ArraySpec {
  int32_t element_type = 0;
  std::vector<int64_t> dims;

  bool operator==(const ArraySpec&) const = default;
};

// What BufferFromHost may do with the caller's bytes.
enum class HostSemantics {
  kCopyDuringCall,     // copied before the call returns; on_done runs inside it
  kUntilTransferDone,  // bytes stay valid and unchanged until on_done
  // The bytes become the buffer's memory where the runtime supports it (XLA CPU: if aligned to
  // 64 bytes); otherwise it copies. They stay valid and unchanged until on_done, which runs when
  // the buffer and all its readers are gone.
  kZeroCopy,
};

// One array on one device. Its contents may still be pending.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  virtual int device() const = 0;  // local index
  virtual const ArraySpec& spec() const = 0;
  virtual std::string memory_kind() const = 0;
  // Bytes that the buffer takes on the device. INVALID_ARGUMENT once deleted or donated.
  virtual absl::StatusOr<size_t> OnDeviceBytes() const = 0;

  // Runs `callback` when the contents are ready, or with the error that poisoned them.
  virtual void OnReady(StatusCallback callback) = 0;

  // Copies the contents, dense and row-major, to `dst` of exactly HostBytes(spec()) bytes
  // (element_type.h) once they are ready; `dst` stays valid until `on_done`. INVALID_ARGUMENT in
  // on_done: wrong size, deleted or donated.
  virtual void CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) = 0;
  // Copies them before it returns, if they are ready and this process can read the device's memory. False: not so, or
  // they are an error; use CopyToHost. The caller keeps the buffer from being deleted or donated during the call.
  virtual bool CopyToHostNow(void* /*dst*/, size_t /*dst_bytes*/) { return false; }

  // A copy on another (or the same) device; `memory_kind` empty = the default one. Returns at once.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> CopyToDevice(
      int device, std::string_view memory_kind = "") = 0;

  // Frees the memory, after pending readers. Any later use is INVALID_ARGUMENT.
  // Idempotent.
  virtual void Delete() = 0;
  virtual bool IsDeleted() const = 0;  // true after Delete and after donation to an execute
};

// The producer's side of a placeholder. Only the first Fill or Fail takes effect. A Filler that is
// dropped before either fails its buffer with CANCELLED, so that no reader waits forever.
class Filler {
 public:
  virtual ~Filler() = default;

  // `bytes` (dense, row-major, HostBytes of the spec) stays valid until `on_done`.
  // INVALID_ARGUMENT: wrong size; FAILED_PRECONDITION: already filled or failed. Programs waiting
  // for the buffer may run inside this call.
  virtual absl::Status Fill(std::span<const std::byte> bytes, StatusCallback on_done) = 0;

  // `error` must not be OK. Its code and text (not its payloads) reach every reader of the buffer
  // unchanged.
  virtual absl::Status Fail(absl::Status error) = 0;
};

struct Placeholder {
  std::unique_ptr<Buffer> buffer;
  std::unique_ptr<Filler> filler;
};

// Per-device bytes, as the compiler counted them. Admission (GS-2) relies on them.
struct MemoryStats {
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t temp_bytes = 0;
  int64_t alias_bytes = 0;  // the part of the arguments that outputs reuse (donation)
  int64_t generated_code_bytes = 0;
};

// Runs a collective of the program, by its number in the program's table, as a member for one device. Blocks until the
// other members have done their part. A result may overlap operands only as Member::Run allows it
// (collective/execution/member.h).
using CollectiveCall =
    std::function<absl::Status(int64_t number, std::span<const std::span<const std::byte>> operands,
                               std::span<const std::span<std::byte>> results)>;

struct ExecuteOptions {
  // The same on all devices of one launch. Of a program over several devices it is not 0, and unique among the launches
  // in flight: the runtime finds a launch's members by it. FFI handlers read it as their RunId.
  int32_t launch_id = 0;
  // Indices of arguments that must survive although the program may alias them to an output.
  std::vector<int64_t> non_donatable;
  // Of a program whose collectives are Gangway's own. A runtime with FFI handlers calls a handler instead.
  CollectiveCall collective;
};

// A compiled function, loaded on an ordered list of devices.
class Executable {
 public:
  virtual ~Executable() = default;
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  virtual std::string_view name() const = 0;
  virtual int num_replicas() const = 0;
  virtual int num_partitions() const = 0;
  // devices()[i] runs logical position i. Size num_replicas x num_partitions; of a program for one position whose
  // options say compile_portable_executable, any number: each of them can run it.
  virtual std::span<const int> devices() const = 0;
  // Per-device shapes.
  virtual std::span<const ArraySpec> outputs() const = 0;
  int num_outputs() const { return static_cast<int>(outputs().size()); }
  // Of each output, "" for the default kind; no kinds where the runtime does not say.
  virtual std::span<const std::string> output_memory_kinds() const { return {}; }

  // UNIMPLEMENTED where the runtime does not count memory.
  virtual absl::StatusOr<MemoryStats> GetMemoryStats() const = 0;
  // Named numbers ("flops", "bytes accessed", ...). UNIMPLEMENTED where the runtime does not count them; an HLO
  // program's are counted from it then (xla/cost_analysis.h).
  virtual absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const = 0;

  // Bytes for Backend::Load, in this process or in another with the same runtime and version.
  virtual absl::StatusOr<std::string> Serialize() const = 0;
  // The per-device program after partitioning and optimization. PJRT: a serialized
  // HloModuleProtoWithConfig (field 1: the HloModuleProto), which Compile takes again as format
  // "hlo_with_config".
  virtual absl::StatusOr<std::string> OptimizedProgram() const = 0;

  // Enqueues one run on local device `device`, which must be one of devices(). With several devices
  // the caller makes one call per device; a program with the runtime's own collectives finishes
  // only after all these calls. Arguments may be unfilled placeholders, and may be dropped when
  // this returns. Donated arguments (aliased to an output and not in non_donatable) are consumed:
  // IsDeleted() is then true, even if the run fails later. The returned outputs are not ready yet.
  // `on_complete` runs with the status of the run when the device has finished it.
  // INVALID_ARGUMENT: wrong number, shape or device of an argument, an argument already deleted or donated, or no
  // launch id. FAILED_PRECONDITION: the launch id is in flight for another launch.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> ExecuteOn(
      int device, std::span<Buffer* const> arguments, const ExecuteOptions& options,
      StatusCallback on_complete) = 0;
};

struct Program {
  std::string_view code;
  // "mlir" (StableHLO: text, bytecode or portable artifact), "hlo" (HloModuleProto),
  // "hlo_with_config", "sim".
  std::string_view format;
};

// A typed-FFI handler (XLA_FFI_Handler*) under the name that custom calls use.
struct FfiHandler {
  std::string name;
  void* handler = nullptr;
  bool device_memory = false;  // it gets addresses of device memory
};

inline bool Takes(const Capabilities& capabilities, const FfiHandler& handler) {
  using FfiHandlers = Capabilities::FfiHandlers;
  return capabilities.ffi_handlers ==
         (handler.device_memory ? FfiHandlers::kDeviceMemory : FfiHandlers::kHostMemory);
}

// One opened device runtime.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual const Capabilities& capabilities() const = 0;
  virtual std::span<const DeviceInfo> devices() const = 0;

  // Compiles for `devices` (local indices, logical position i on devices[i]); empty = devices
  // 0..n-1. `compile_options` is a serialized xla.CompileOptionsProto ("" = one device, defaults;
  // sim ignores it); any device assignment in it is replaced. Blocks: 25 ms for a trivial program,
  // seconds for a training step. INVALID_ARGUMENT: malformed program or options, or a device count
  // other than replicas x partitions.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                              std::string_view compile_options,
                                                              std::span<const int> devices) = 0;

  // Loads Serialize()'s bytes on any ordered list of `devices` (see Compile), which may differ from
  // the list that they were compiled for.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized,
                                                           std::span<const int> devices) = 0;

  // A buffer with the given host contents. `bytes` has HostBytes(spec) bytes. `on_done` runs when
  // the runtime no longer needs the bytes (see HostSemantics), with the status of their transfer.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(
      int device, std::string_view memory_kind, const ArraySpec& spec,
      std::span<const std::byte> bytes, HostSemantics semantics, StatusCallback on_done) = 0;

  // A buffer with pending contents, and the Filler that settles it. Executes on it return at once, unless
  // Capabilities::execute_waits_for_arguments.
  virtual absl::StatusOr<Placeholder> CreatePlaceholder(int device, const ArraySpec& spec) = 0;

  // A buffer that is poisoned from the start.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> CreateErrorBuffer(int device,
                                                                    const ArraySpec& spec,
                                                                    absl::Status error) = 0;

  // Lets transfers use `memory` of this process without a copy on the way (CUDA locks its pages), until the result is
  // gone; `memory` stays mapped until then. Takes as long as a copy of it. The result may outlive the Backend.
  // UNIMPLEMENTED: the runtime has no use for it. After any error, transfers work as before.
  virtual absl::StatusOr<std::shared_ptr<void>> PinHostMemory(std::span<std::byte> /*memory*/) {
    return absl::UnimplementedError("this device runtime does not pin host memory");
  }

  // Registers `handlers` for the custom calls of every program that this process compiles or loads
  // later. Verifies each registration by compiling a probe that names them all. A name may be
  // registered again with the same address. FAILED_PRECONDITION: the runtime rejected a handler
  // (the text names it and what to do); UNIMPLEMENTED: the runtime has no FFI.
  virtual absl::Status RegisterFfiHandlers(std::span<const FfiHandler> handlers) = 0;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_DEVICE_H_
