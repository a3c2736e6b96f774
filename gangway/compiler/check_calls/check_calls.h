// The custom calls that a client's program may make: one table of targets, each with a rule for the operands, results,
// attributes, called computations, aliases and layouts that its handler, or XLA, assumes. A target without a rule is
// refused by name. docs/internals/program-check-calls.md says where the targets come from, and what the rules cannot
// prove. Pure functions on untrusted protos.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_H_
#define GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/compiler/check_calls/custom_call.h"
#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

struct CallSettings {
  std::string platform;    // Capabilities::platform of the devices
  int64_t partitions = 1;  // for which the program is compiled
  bool simulates_work =
      false;  // the cluster has the call of simulated work (device/pjrt/simulated_work.h)
};

// The rule for all calls of `module`, which outlives it. Reads of the module what a call does not show: the shardings
// of operands, and the meshes of Shardy. Errors of the rule: INVALID_ARGUMENT for a call that does not fit its target,
// UNIMPLEMENTED for a target that is not in the table, or not for this platform. Their texts name the target and say
// what to do.
CustomCallRule MakeCustomCallRule(const xla::hlo::Module& module, CallSettings settings);

// All targets of the table, in its order.
std::vector<std::string_view> KnownTargets();

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_CALLS_CHECK_CALLS_H_
