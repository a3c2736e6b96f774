// Partitions a program for all of its logical positions, with a runtime that has a device per position: the compiler's
// own, or one that is opened for this and closed again. Has no state.
//
// On XLA CPU, another runtime costs a thread for each device and up to kPartitionThreads more, and some kPartitionBytes
// of memory for each: all of it is given back when Partition returns. A compiler partitions one program at a time, so
// there is never more than one such runtime; other compiles wait for their turn, but not what is in the cache.
// A program of more than kSpanMax positions is refused before anything is opened.
#ifndef GANGWAY_COMPILER_PARTITION_H_
#define GANGWAY_COMPILER_PARTITION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/xla/sharded_calls.pb.h"

namespace gangway::compiler {

// A runtime of the same kind with this number of devices, for one compile.
using OpenBackend =
    std::function<absl::StatusOr<std::unique_ptr<device::Backend>>(int device_count)>;

inline constexpr uint32_t kSpanMax = 2048;  // positions of one program
// Of a runtime with a device for each of n positions: at most n + kPartitionThreads threads, and n * kPartitionBytes
// of memory beside what the program itself needs.
inline constexpr uint32_t kPartitionThreads = 320;
inline constexpr uint64_t kPartitionBytes = uint64_t{160} << 10;

using Costs = std::vector<std::pair<std::string, double>>;

// A program as the runtime has partitioned it.
struct Partitioned {
  std::string program;  // of one position, as device::Executable::OptimizedProgram yields it
  std::vector<std::string> memory_kinds;  // of the outputs, as device::Executable has them
  // As device::Executable::GetCostAnalysis yields them; UNIMPLEMENTED also where the runtime has no code for a
  // collective, so that there was no executable to ask.
  absl::StatusOr<Costs> costs = absl::UnimplementedError("there is no executable");
};

// How XLA hands over the all-to-all of an array: as it is, or as slices, their all-to-all and a concatenation. Slices
// and concatenation are copies.
enum class Exchanges { kOfArrays, kOfSlices };

// `backend` partitions if it has a device for each position, else what `open` makes. If the client or this process's
// XLA_FLAGS choose XLA's passes, the exchanges are theirs.
//
// Errors: RESOURCE_EXHAUSTED beyond kSpanMax positions, or if the process may not start that many threads; those of
// `open` and Backend::Compile. The code that the runtime makes is thrown away, so a collective that it has no code for
// is no error.
absl::StatusOr<Partitioned> Partition(device::Backend& backend, const wire::CompileRequest& request,
                                      const OpenBackend& open, Exchanges exchanges);

struct CutRequest {
  // HLO whose shardings are propagated; nothing, if no call was cut.
  std::optional<wire::CompileRequest> request;
  // What the program asks its client, answered or not.
  xla::CallsToPartition asked;
};

// Cuts the calls of a program that XLA's partitioner would not (sharded_calls.h). `answers` of its client: none, or one
// for each call that asks, with its module as HLO. Costs another compile, without its code being made good. Errors: as
// Partition's; UNAVAILABLE, if there is no room for what the runtime writes; those of Cut.
absl::StatusOr<CutRequest> CutCallsOf(
    device::Backend& backend, const wire::CompileRequest& request, const OpenBackend& open,
    const google::protobuf::RepeatedPtrField<xla::PartitionedCall>& answers);

// Calls `use` with `backend` if it has that many devices, else with what `open` makes, which is closed again. Errors:
// RESOURCE_EXHAUSTED beyond kSpanMax, or if the process may not start that many threads; those of `open` and `use`.
absl::Status WithPartitioner(device::Backend& backend, uint32_t device_count,
                             const OpenBackend& open,
                             absl::FunctionRef<absl::Status(device::Backend&)> use);

// Compiles for logical positions 0..device_count-1. `options` are the request's, or what was made of them.
absl::StatusOr<std::unique_ptr<device::Executable>> CompileForPositions(
    device::Backend& backend, const wire::CompileRequest& request, const std::string& options);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_PARTITION_H_
