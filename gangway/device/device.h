// The device interface: what a worker or the compiler needs from one opened device runtime (a PJRT
// plugin, or a simulated accelerator). Buffers are futures: an executable may be enqueued on
// buffers that hold nothing yet.
//
// Threading: every method may be called from any thread. Two rules are the caller's:
//   * One thread per device calls Executable::ExecuteOn, and does nothing else. Where
//     Capabilities::executes_inline is set, a small program runs inside ExecuteOn, so a collective
//     in it blocks that thread until the peers arrive.
//   * Never more than Capabilities::inflight_max executes of one device between ExecuteOn and their
//     on_complete. One more blocks its caller until one finishes; if that caller also fills
//     placeholders, it hangs for ever.
// Callbacks (StatusCallback) run exactly once, on a thread of the runtime or inside the call that
// registers them. They must not block, must not throw and must not destroy the Backend. They may
// create, use and drop buffers.
//
// Ownership: the Backend outlives everything made by it. Dropping a Buffer or an Executable is
// always allowed, also while enqueued work still reads it: the runtime keeps the memory until that
// work is done.
//
// Failure: a call that returns an error had no effect and runs no callback. Errors of the
// asynchronous work arrive at the callbacks and stick to the output buffers, and to the outputs of
// everything that reads those.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::device {

using StatusCallback = std::function<void(absl::Status)>;

struct Capabilities {
  std::string platform;          // "cpu", "cuda", "tpu", "sim"
  std::string platform_version;  // as the runtime says it; part of the compile cache's key
  std::string api_version;       // "PJRT C API 0.81", "sim 1"
  // Executes in flight per device, running or waiting for inputs, before ExecuteOn blocks its
  // caller.
  int inflight_max = 32;
  // ExecuteOn may run the program in its caller's thread.
  bool executes_inline = false;
  // A collective whose member never comes can be ended without ending the process.
  bool collectives_abortable = false;
  // BufferFromHost with HostSemantics::kZeroCopy really keeps the caller's memory.
  bool host_zero_copy = false;
  // RegisterFfiHandlers works.
  bool ffi_handlers = false;
};

struct DeviceInfo {
  int local_index = 0;  // 0 .. devices().size() - 1: how every call here names a device
  int64_t runtime_id = 0;
  std::string kind;
  std::vector<std::string> memory_kinds;  // the first one is the default
};

// What one array is on one device.
struct ArraySpec {
  int32_t element_type = 0;
  std::vector<int64_t> dims;

  bool operator==(const ArraySpec&) const = default;
};

// What BufferFromHost may do with the caller's bytes.
enum class HostSemantics {
  kCopyDuringCall,     // copied before the call returns; on_done runs inside it
  kUntilTransferDone,  // bytes stay valid and unchanged until on_done
  // Bytes become the buffer's memory where the runtime can (64-byte aligned on XLA CPU; else it
  // copies): valid and unchanged until on_done, which runs when the buffer and all readers of it
  // are gone.
  kZeroCopy,
};

// One array on one device, or the promise of it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  virtual int device() const = 0;  // local index
  virtual const ArraySpec& spec() const = 0;
  virtual std::string memory_kind() const = 0;
  // Size of the memory it takes on the device. INVALID_ARGUMENT once deleted or donated.
  virtual absl::StatusOr<size_t> OnDeviceBytes() const = 0;

  // Runs `callback` when the contents are there, or with the error that spoiled them.
  virtual void OnReady(StatusCallback callback) = 0;

  // Copies the contents, dense and row-major, to `dst` of exactly HostBytes(spec()) bytes
  // (element_type.h) once they are there; `dst` stays valid until `on_done`. INVALID_ARGUMENT in
  // on_done: wrong size, deleted or donated.
  virtual void CopyToHost(void* dst, size_t dst_bytes, StatusCallback on_done) = 0;

  // A copy on another (or the same) device; `memory_kind` empty = the default one. Returns at once.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> CopyToDevice(
      int device, std::string_view memory_kind = "") = 0;

  // Gives the memory back now (after pending readers). Any later use is INVALID_ARGUMENT.
  // Idempotent.
  virtual void Delete() = 0;
  virtual bool IsDeleted() const = 0;  // true after Delete and after donation to an execute
};

// The producer's side of a placeholder. Exactly one of Fill, Fail takes effect; a Filler that is
// dropped before fails its buffer with CANCELLED, so that nobody waits for it.
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

// Per-device bytes, as the compiler counted them; the base of admission (GS-2).
struct MemoryStats {
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t temp_bytes = 0;
  int64_t alias_bytes = 0;  // the part of the arguments that outputs reuse (donation)
  int64_t generated_code_bytes = 0;
};

struct ExecuteOptions {
  // The same on all devices of one launch, and for a program with collectives no other launch in
  // flight may have it: XLA CPU knows the members of a collective by it, and mixes two gangs that
  // share one silently. FFI handlers read it as their RunId. 0 is fine for a program without
  // collectives.
  int32_t launch_id = 0;
  // Arguments that must survive although the program may alias them to an output.
  std::vector<int64_t> non_donatable;
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
  // devices()[i] runs logical position i. Size num_replicas x num_partitions.
  virtual std::span<const int> devices() const = 0;
  // Per-device shapes.
  virtual std::span<const ArraySpec> outputs() const = 0;
  int num_outputs() const { return static_cast<int>(outputs().size()); }

  // UNIMPLEMENTED where the runtime does not count.
  virtual absl::StatusOr<MemoryStats> GetMemoryStats() const = 0;
  // Named numbers ("flops", "bytes accessed", ...); may be empty.
  virtual absl::StatusOr<std::vector<std::pair<std::string, double>>> GetCostAnalysis() const = 0;

  // Bytes that Backend::Load takes, in this process or another one with the same runtime and
  // version.
  virtual absl::StatusOr<std::string> Serialize() const = 0;
  // The per-device program after partitioning and optimization. PJRT: a serialized
  // HloModuleProtoWithConfig (field 1: the HloModuleProto), which Compile takes again as format
  // "hlo_with_config".
  virtual absl::StatusOr<std::string> OptimizedProgram() const = 0;

  // Enqueues one run on local device `device`, which must be one of devices(). With several devices
  // the caller makes one call per device; a program with the runtime's own collectives finishes
  // only when all were made. Arguments may be unfilled placeholders, and may be dropped when this
  // returns. Donated ones (aliased to an output and not in non_donatable) are consumed: IsDeleted()
  // afterwards, also when the run fails later. Returns the outputs, not ready yet. `on_complete`
  // runs when the device is done with this run, with its status. INVALID_ARGUMENT: wrong number,
  // shape or device of an argument, an argument deleted or donated before.
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
};

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
  // seconds for a training step. INVALID_ARGUMENT: malformed program or options, or not as many
  // devices as replicas x partitions.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program,
                                                              std::string_view compile_options,
                                                              std::span<const int> devices) = 0;

  // Loads Serialize()'s bytes on any ordered list of `devices` (see Compile), whatever list they
  // were compiled for.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Load(std::string_view serialized,
                                                           std::span<const int> devices) = 0;

  // A buffer with the given host contents. `bytes` has HostBytes(spec) bytes. `on_done`: the bytes
  // are free again (see HostSemantics); its status says whether they were taken.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> BufferFromHost(
      int device, std::string_view memory_kind, const ArraySpec& spec,
      std::span<const std::byte> bytes, HostSemantics semantics, StatusCallback on_done) = 0;

  // A buffer without contents yet, and the means to fill or fail it. Executes on it return at once.
  virtual absl::StatusOr<Placeholder> CreatePlaceholder(int device, const ArraySpec& spec) = 0;

  // A buffer that is poisoned from the start.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> CreateErrorBuffer(int device,
                                                                    const ArraySpec& spec,
                                                                    absl::Status error) = 0;

  // Makes custom calls to `handlers` work in every program compiled or loaded later, in this
  // process. Proves that each registration took, by compiling a probe that names them all. Names
  // that this process registered before with the same address are fine. FAILED_PRECONDITION: the
  // runtime refused one (the text names it and what to do); UNIMPLEMENTED: no FFI here.
  virtual absl::Status RegisterFfiHandlers(std::span<const FfiHandler> handlers) = 0;
};

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_DEVICE_H_
