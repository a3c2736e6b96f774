// Computations that XLA applies to elements as often as it likes and in any order: reductions, comparators, and those
// of maps, scatters and windows. Internal to gangway/compiler/check. Pure functions, on modules that are checked as far
// as each says.
#ifndef GANGWAY_COMPILER_CHECK_APPLIED_H_
#define GANGWAY_COMPILER_CHECK_APPLIED_H_

#include <string_view>

#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// Whether what `self` calls is applied to elements. Loops, branches, calls and fusions of cuDNN run theirs as a part of
// the program.
bool AppliesToElements(const xla::hlo::Instruction& self);

// A call that only says how its operand is sharded; JAX writes it into reductions, too, where it says nothing.
bool IsAnnotation(const xla::hlo::Instruction& self);

// The opcode, if the computation is one operation of its two parameters, and annotations; empty if it is something
// else. Its instructions are checked.
std::string_view OperationOf(const xla::hlo::Computation& computation);

// Removes the annotations in computations that are applied to elements, and in what those call. XLA would put a copy in
// the place of each. The module is checked.
void RemoveAppliedAnnotations(xla::hlo::Module& module);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_APPLIED_H_
