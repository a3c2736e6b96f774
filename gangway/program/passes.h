// The passes that make of a client's graph one that can be launched. Each takes a program and returns one, with its own
// file and a test in text form; none changes what is computed (DF-3). They take time in proportion to the nodes and
// their inputs. Pure.
#ifndef GANGWAY_PROGRAM_PASSES_H_
#define GANGWAY_PROGRAM_PASSES_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/program/array_shape.h"
#include "gangway/program/program.h"

namespace gangway::program {

// What is known of a compiled function.
struct FunctionType {
  std::string name;  // for people
  std::vector<ArrayShape> parameters;
  std::vector<ArrayShape> results;
  std::vector<uint32_t> donated;  // parameter indices, increasing
  Devices devices;                // that it runs on
};
// By its name in Program::functions(); asked once for each. What it points to stays as it is until the pass has ended.
// Its error is one of the program.
using FunctionTypes = std::function<absl::StatusOr<const FunctionType*>(const std::string& name)>;

// What is known of an argument.
struct ArgumentType {
  std::optional<ArrayShape> shape;
  Devices devices;  // empty: not known
};

// bind.cc: the shape and the devices of every value for which they can be known, and what each call donates.
// INVALID_ARGUMENT naming the node, its source and the function: an unknown function, another number of inputs or
// outputs than it has, an input of another shape than it takes (both are named, with their devices), a shard that a
// view names and its input does not have, shards of different shapes in a view, a transfer to another number of
// devices, devices or a shape of an argument that are not those that the program says. What is not known is taken to
// fit. `arguments` may be shorter than the program's.
absl::StatusOr<Program> Bind(const Program& program, std::span<const ArgumentType> arguments,
                             const FunctionTypes& functions);

// transfers.cc: a transfer of each input that is known to be on other devices than its call runs on, once for all calls
// that take it to the same devices, unless one of them donates it. INVALID_ARGUMENT naming the node and both lists of
// devices where they differ in number.
absl::StatusOr<Program> InsertTransfers(const Program& program);

// order.cc: each transfer of a call's output directly behind that call, so that bytes move while others compute. All
// else keeps its order: it is the client's schedule.
Program Order(const Program& program);

// liveness.cc: behind the last use of each value but the arguments, a kFree for it; those of one place are one node. A
// view holds the shards that it is made of, so making it is the only use that it makes of other values.
Program AddFrees(const Program& program);

// Bind, InsertTransfers, Order and AddFrees, with Verify before them, and once more behind Bind, which knows what is
// donated.
absl::StatusOr<Program> Lower(const Program& program, std::span<const ArgumentType> arguments,
                              const FunctionTypes& functions);

// order.cc: the arguments before all other nodes, for programs whose makers meet arguments as they go.
Program ArgumentsFirst(const Program& program);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_PASSES_H_
