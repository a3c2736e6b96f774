// Cuts custom calls by hand where XLA's partitioner, which does not know what they compute, would gather all operands
// on every position.
//
// The input is a program whose shardings are propagated and that is not partitioned yet. In the output, such a call
// takes and yields shards: its operands get the shardings that it needs, and a pair of XLA's own calls
// (SPMDFullToShardShape, SPMDShardToFullShape) lies between whole arrays and shards, as around jax.shard_map. What
// takes and yields shards already stays as it is.
//
// - A batch call computes each entry of its leading dimensions alone: it has the attribute num_batch_dims, which JAX
//   gives to LAPACK's functions. It is cut along these dimensions as its results are, or else its operands; what is cut
//   along other dimensions is gathered there. It stays whole if nothing is cut along its batch, or not evenly.
// - A local call takes its operands as they lie, and yields nothing: jax.debug.print with partitioned=True. It gets one
//   more operand, s32[n], which has the dimensions of the shards: rank and dimensions of each.
// - An asked call is partitioned by its client, whose answer has a module for shards, and shardings
//   (jax.custom_partitioning), or is empty, if the client only looks (jax.debug.inspect_array_sharding).
//
// Pure functions on untrusted bytes.
#ifndef GANGWAY_COMPILER_SHARDED_CALLS_H_
#define GANGWAY_COMPILER_SHARDED_CALLS_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/xla/hlo_edit.pb.h"
#include "gangway/xla/sharded_calls.pb.h"

namespace gangway::compiler {

// Whether a program in any of StableHLO's and HLO's forms may hold a call that is cut: false is certain.
bool MayHaveCallsToCut(std::string_view program);

// A client's answer for one asked call.
struct CallAnswer {
  const xla::HloModuleEditProto* module =
      nullptr;  // HLO of one position, as StableHLO is converted; null: only looked
  const xla::PartitionedCall* shardings = nullptr;  // read only with a module
};

struct CutCalls {
  int cut = 0;                  // calls
  xla::CallsToPartition asked;  // all asked calls, in the order of `answers`
};

// Cuts calls of `module`, whose shardings are of `positions` positions. `answers`: none, and asked calls stay as they
// are; or one for each. INVALID_ARGUMENT: a malformed program, or answers that do not fit its calls, which are named.
absl::StatusOr<CutCalls> Cut(xla::HloModuleEditProto& module, int64_t positions,
                             const std::vector<CallAnswer>& answers);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_SHARDED_CALLS_H_
