// The costs of a compiled program, counted from its optimized HLO: what jax.stages.Compiled.cost_analysis() reports,
// for runtimes that do not count them. Pure; for any program, in time linear in its size.
#ifndef GANGWAY_XLA_COST_ANALYSIS_H_
#define GANGWAY_XLA_COST_ANALYSIS_H_

#include "absl/status/statusor.h"

#include "gangway/xla/hlo_cost.pb.h"

namespace gangway::xla {

// Of one run on one device. A loop counts as one iteration, since HLO does not say how many it makes; of the branches
// of a conditional, the dearest counts. What a custom call computes is unknown and counts as nothing.
struct ProgramCosts {
  double flops = 0;            // a multiplication that is added to a sum counts as two
  double transcendentals = 0;  // elements of exp, log, tanh, power, ...; they are not in `flops`
  double bytes_accessed =
      0;  // read and written by instructions; those inside of a fusion access nothing
};

// `program`: of ParseInstructions (executable.h). INVALID_ARGUMENT: it is malformed, above all an instruction that
// refers to one after it.
absl::StatusOr<ProgramCosts> AnalyzeCosts(const HloWithConfigCostProto& program);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_COST_ANALYSIS_H_
