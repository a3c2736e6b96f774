// The reference result of a program: evaluates it node by node, without concurrency. DF-3: under every schedule, a
// cluster's arrays equal these bitwise. The caller passes what functions compute.
#ifndef GANGWAY_PROGRAM_INTERPRETER_H_
#define GANGWAY_PROGRAM_INTERPRETER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/program/program.h"

namespace gangway::program {

struct Array {
  Devices devices;
  std::vector<std::string> shards;  // bytes, one per device

  bool operator==(const Array&) const = default;
};

struct Call {
  std::string function;
  Devices devices;
  uint32_t output_count = 0;
};

// The outputs of one call: per output the shards, one per device of the call.
using Evaluate = std::function<absl::StatusOr<std::vector<std::vector<std::string>>>(
    const Call& call, const std::vector<const Array*>& inputs)>;

// The values of the result nodes, in order. A replica is the first shard. INVALID_ARGUMENT naming the node when the
// program does not verify, when the devices of a call are not known, when an argument is missing or lies on other
// devices than the program says, when a view names a shard that is not there, when a transfer moves another number of
// shards, or when `evaluate` gives another number of outputs or shards.
absl::StatusOr<std::vector<Array>> Interpret(const Program& program, std::vector<Array> arguments,
                                             const Evaluate& evaluate);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_INTERPRETER_H_
