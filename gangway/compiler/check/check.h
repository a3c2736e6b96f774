// Checks a program before anything of it is compiled. XLA assumes that its own front end wrote a program; here, a
// client did. What is not known is refused by name, so a newer XLA's additions are refused until they get a rule.
// docs/internals/program-check.md says what is checked, and what is not.
//
// Pure functions: any thread, no state. The time is linear in the size of the module.
#ifndef GANGWAY_COMPILER_CHECK_CHECK_H_
#define GANGWAY_COMPILER_CHECK_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "gangway/compiler/check_calls/custom_call.h"

namespace gangway::compiler {

// How many positions the program is compiled for; zero where that is not known yet. Then ids of replicas and
// partitions have only the bound of the largest program.
struct Positions {
  int64_t replicas = 0;
  int64_t partitions = 0;
};

struct Checked {
  // Some sort's comparator is not known to be a strict weak order. XLA's unstable sort may leave its buffers then;
  // the stable one does not. So all sorts must become stable.
  bool wants_stable_sorts = false;
  // Some computation that XLA applies to elements says how a value is sharded. XLA puts a copy there, and ends its
  // process when it then finds a copy as the reduction of a collective of bf16. So these notes must go.
  bool has_applied_annotations = false;

  bool wants_changes() const { return wants_stable_sorts || has_applied_annotations; }
};

// `serialized_module` is an HloModuleProto before XLA's optimizations. INVALID_ARGUMENT for a program that breaks a
// rule of HLO; UNIMPLEMENTED for what is legal, but is not taken from clients; RESOURCE_EXHAUSTED for what is over a
// limit. Messages name the instruction and say what to do.
absl::StatusOr<Checked> CheckProgram(std::string_view serialized_module,
                                     const CustomCallRules& rules, Positions positions = {});

// The module as XLA may have it, which computes the same. It passed CheckProgram with this result. INVALID_ARGUMENT if
// it does not parse.
absl::StatusOr<std::string> WithChanges(std::string_view serialized_module, const Checked& checked);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_CHECK_H_
