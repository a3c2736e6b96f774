// Whether the comparator of a sort is a strict weak order, as XLA's sort assumes.
#ifndef GANGWAY_COMPILER_CHECK_COMPARATOR_H_
#define GANGWAY_COMPILER_CHECK_COMPARATOR_H_

#include "gangway/compiler/check/site.h"

namespace gangway::compiler {

// Recognizes lexicographic orders: f(a) < f(b), or f(a) == f(b) and the next such order, where each comparison is a
// total one (of integers, or TOTALORDER of floats), and f is computed alike from the parameters of either side. That
// is what JAX writes for every sort with keys. False for other computations, orders among them. Linear in the size of
// the computation.
bool IsStrictWeakOrder(const Callee& comparator);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_COMPARATOR_H_
