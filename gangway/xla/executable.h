// The interface of a compiled program, read from its optimized HLO without MLIR. Pure functions on
// bytes from a plugin or a network: malformed bytes are INVALID_ARGUMENT, nested tuples in the
// interface UNIMPLEMENTED.
#ifndef GANGWAY_XLA_EXECUTABLE_H_
#define GANGWAY_XLA_EXECUTABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_cost.pb.h"
#include "gangway/xla/sharding.h"

namespace gangway::xla {

struct Operand {
  int32_t element_type = 0;
  std::vector<int64_t> global_dims;
  std::vector<int64_t> shard_dims;  // what the program sees on one device
  OpShardingProto sharding;         // replicated if the program records none
  bool fully_replicated = true;
};

struct ExecutableDescription {
  std::string name;
  std::string source;  // "FILE:LINE", or "" (source_line.h)
  int64_t replica_count = 1;
  int64_t partition_count = 1;
  std::vector<Operand> parameters;
  std::vector<Operand> results;
  // Parameters whose memory a result takes, ascending: an execution may consume them. A donation that no result can use
  // is not listed, so that the argument lives on, as on XLA CPU.
  std::vector<int32_t> donated;
};

// `hlo_with_config`: a serialized HloModuleWithConfigProto, the form that
// PJRT_Executable_OptimizedProgram yields. Its entry shapes are per device; global = shard
// dimension x tiles of the recorded sharding. UNIMPLEMENTED: a parameter or a result is not
// row-major, as every array of the cluster is.
absl::StatusOr<ExecutableDescription> DescribeExecutable(std::string_view hlo_with_config);

// The instructions, which take most of the time to parse: once for all that asks about them.
absl::StatusOr<HloWithConfigCostProto> ParseInstructions(std::string_view hlo_with_config);

// Whether devices wait for one another in this program: it holds a collective, or it sends or receives.
bool HasCollectives(const HloWithConfigCostProto& program);

// UNIMPLEMENTED, with the instruction: the program waits for bytes that its host feeds to the device, or takes from it.
// Gangway has no such feeds, so the device would wait for good.
absl::Status CheckNoFeeds(std::string_view hlo_with_config);

// The same program, whose configuration says other layouts of its parameters, minor to major; none: as it is. Nothing
// else of it changes. INVALID_ARGUMENT: it has another number of parameters.
absl::StatusOr<std::string> WithParameterLayouts(
    std::string_view hlo_with_config, std::span<const std::vector<int64_t>> minor_to_major);

// HLO-like text for people: computations, instructions, operands and shapes; no attributes.
absl::StatusOr<std::string> ProgramText(std::string_view hlo_with_config);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_EXECUTABLE_H_
