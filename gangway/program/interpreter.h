// What the right answer is: a program evaluated node after node, with nothing concurrent. DF-3:
// whatever the schedule, a cluster's arrays are bitwise those. What an executable computes is given
// as a function.
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
