// What the rule of an opcode sees: an instruction, the shapes of its operands, and the computations that it calls,
// which were checked before. Internal to gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_SITE_H_
#define GANGWAY_COMPILER_CHECK_SITE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "gangway/compiler/check/check.h"
#include "gangway/compiler/check/shapes.h"
#include "gangway/compiler/check_calls/sharding_text.h"

namespace gangway::compiler {

// A computation that was checked.
struct Callee {
  const xla::hlo::Computation* computation = nullptr;
  std::vector<const Shape*> parameters;
  const Shape* result = nullptr;
  int root = 0;
  // It computes the same for the same arguments, on one device, and calls nobody. XLA applies a computation to
  // elements as often as it likes and in any order.
  bool is_for_elements = true;
  bool is_annotated = false;   // it, or what it calls, says how a value is sharded
  std::string_view operation;  // if it is one operation of two parameters: the opcode
  bool is_called = false;
  int depth = 1;
  int loop_depth = 0;    // loops and branches that are nested in it
  int64_t expanded = 0;  // instructions, if each call were a copy of what it calls
  int64_t parts = 0;     // of its signature: arrays and tuples, which every call is compared with
};

struct Program {
  const xla::hlo::Module& module;
  const CustomCallRule& check_custom_call;
  Positions positions;
  calls::TextMeshes meshes;  // of Shardy
  absl::flat_hash_map<int64_t, Callee> callees;
  ComputationsById by_id;
  absl::flat_hash_map<const Callee*, bool> orders;  // comparators that were looked at
  int64_t compared = 0;                             // parts of signatures, by all calls so far
  int64_t instructions = 0;                         // so far
  int64_t ids = 0;                                  // the largest of each computation, in all
  Checked checked;
};

struct Site {
  Program& program;
  const xla::hlo::Instruction& self;
  std::span<const Shape* const> operands;
  std::span<const Callee* const> callees;

  const Shape& shape() const { return self.shape(); }
  const Shape& operand(size_t i) const { return *operands[i]; }
};

// Rules: OK, or why the instruction is not valid. The caller has compared the number of operands and of called
// computations with the opcode's, and adds the name of the instruction.
using Rule = absl::Status (*)(const Site&);

// The result must be this array; layouts may differ.
absl::Status ExpectArray(const Site& site, int type, std::span<const int64_t> dims);
absl::Status ExpectShape(const Site& site, const Shape& expected);
// One result, or a tuple of several.
absl::Status ExpectResults(const Site& site, std::span<const Shape> expected);
absl::Status ExpectArrays(const Site& site);

// A computation that XLA applies to elements: scalars in, `types` twice over (first all accumulated, then all
// others), and scalars of `types` out.
absl::Status ExpectReducer(const Callee& callee, std::span<const int> types);
// Scalar parameters of these types, and one scalar out.
absl::Status ExpectScalars(const Callee& callee, std::span<const int> parameters, int result);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_SITE_H_
