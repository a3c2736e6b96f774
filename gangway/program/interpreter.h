// The reference result of a program: evaluates it node by node, without concurrency. DF-3: under
// every schedule, a cluster's arrays equal these bitwise. The caller passes what executables
// compute as a function.
#ifndef GANGWAY_PROGRAM_INTERPRETER_H_
#define GANGWAY_PROGRAM_INTERPRETER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/program/program.h"

namespace gangway::program {

struct Array {
  std::vector<uint32_t> devices;
  std::vector<std::string> shards;  // bytes, one per device

  bool operator==(const Array&) const = default;
};

// The outputs of one call: per output the shards, one per device of the call.
using Evaluate = std::function<absl::StatusOr<std::vector<std::vector<std::string>>>(
    const Node& call, const std::vector<const Array*>& inputs)>;

// The values of the result nodes, in order. INVALID_ARGUMENT when the program does not verify, when
// an argument is missing or lies on other devices than the program says, or when `evaluate` gives
// another number of outputs or shards.
absl::StatusOr<std::vector<Array>> Interpret(const Program& program, std::vector<Array> arguments,
                                             const Evaluate& evaluate);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_INTERPRETER_H_
