// The names of calls that a program's client partitions (sharded_calls.proto), and of the format of such a program.
#ifndef GANGWAY_XLA_SHARDED_CALLS_H_
#define GANGWAY_XLA_SHARDED_CALLS_H_

#include <string_view>

namespace gangway::xla {

// The targets of the calls that jax.custom_partitioning and jax.debug.inspect_array_sharding make.
inline constexpr std::string_view kPartitionTarget = "CustomSPMDPartitioning";
inline constexpr std::string_view kInspectTarget = "InspectSharding";

// Whether a program in any form may hold such a call: false is certain.
inline bool MayAskItsClient(std::string_view program) {
  return program.find(kPartitionTarget) != std::string_view::npos ||
         program.find(kInspectTarget) != std::string_view::npos;
}

// The format of a serialized ProgramWithCalls.
inline constexpr std::string_view kProgramWithCalls = "program_with_calls";

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_SHARDED_CALLS_H_
