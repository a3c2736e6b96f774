// The names by which programs, and those who compile them, know calls that their client partitions
// (sharded_calls.proto).
#ifndef GANGWAY_XLA_SHARDED_CALLS_H_
#define GANGWAY_XLA_SHARDED_CALLS_H_

#include <string_view>

namespace gangway::xla {

// Of jax.custom_partitioning and jax.debug.inspect_array_sharding.
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
