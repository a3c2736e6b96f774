// The form in which a program for Shardy carries a jax.shard_map: a call of the body, whose operands are all results of
// one call of GlobalToLocalShape, in order, and whose results are all operands of one call of LocalToGlobalShape. XLA
// knows the body by its name, and ends its process for what is left of any other form. Internal to
// gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_MANUAL_COMPUTATIONS_H_
#define GANGWAY_COMPILER_CHECK_MANUAL_COMPUTATIONS_H_

#include "absl/status/status.h"

#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// Of a module whose operands and callees are there.
absl::Status CheckManualComputations(const xla::hlo::Module& module);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_MANUAL_COMPUTATIONS_H_
