// What the rule of a custom-call target sees of a call. The program's structure and the fields that all instructions
// have are checked before; the rule judges what belongs to the target: operands, result, attributes, called
// computations, aliasing, layouts. Pointers are valid during the call of the rule only.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_CUSTOM_CALL_H_
#define GANGWAY_COMPILER_CHECK_CALLS_CUSTOM_CALL_H_

#include <cstdint>
#include <functional>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// The computations of a module by their ids.
using ComputationsById = absl::flat_hash_map<int64_t, const xla::hlo::Computation*>;

// Of each computation named in `called_computation_ids` these hold: it is in `computations`, it is no fusion's, and
// its parameters and root have valid shapes. That they fit the operands is the rule's to check. Each shape here is
// valid: element types are known, dimensions are static and not negative, an array has at most 64 dimensions and 2^47
// bytes, layouts are permutations. The same holds for `operand_shapes_with_layout`, whose number may be wrong.
struct CustomCallSite {
  const xla::hlo::Instruction& call;
  std::span<const xla::hlo::Shape* const> operands;
  const ComputationsById& computations;
};

// INVALID_ARGUMENT for a call that does not fit its target's rule, UNIMPLEMENTED for a target without a rule. The
// messages say what to do; the caller adds which instruction it is.
using CustomCallRule = std::function<absl::Status(const CustomCallSite&)>;

// The rule for the calls of one module, which outlives it and is not checked yet.
using CustomCallRules = std::function<CustomCallRule(const xla::hlo::Module&)>;

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_CALLS_CUSTOM_CALL_H_
