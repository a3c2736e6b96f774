// Program: a block of calls and copies that is traced once, and run by one message whatever its size.
//
//   auto step = Trace(cluster, "step", [&](std::span<const Array> in) -> std::vector<Array> {
//     Array hidden = first(in[0], in[1]);               // on the first mesh
//     return {second(in[2], hidden)};                   // on the second: the copy between them is part of the program
//   }, {weights0, x, weights1});
//   Array y = (*step)(weights0, x, weights1);
//
// Threading: as Function.
#ifndef GANGWAY_PROGRAM_H_
#define GANGWAY_PROGRAM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "array.h"
#include "cluster.h"
#include "function.h"
#include "status.h"

namespace gangway {

namespace api {
class ProgramState;
}  // namespace api

// When the workers of a node get it, and begin its work on the host.
enum class Dispatch {
  kParallel,  // at once, ahead of all data: Figure 4b of the Pathways paper
  kSequential,  // once the nodes that make its inputs were given to their devices: Figure 4a, for comparison
};

// What Trace traces.
using Traced = std::function<std::vector<Array>(std::span<const Array> arguments)>;

// A registered program. When the last copy is gone, the cluster drops it; launches that were made before still run. It
// keeps the functions that it calls.
//
// A call is one launch. Its arguments have the shapes, element types and shardings of those that it was traced with; an
// argument that the program donates has to be given away (Donate), else the launch fails. Nodes run when their inputs
// are there, in any order which that allows; results are computed as the same calls without a program would, bitwise.
// A node that fails names the program, the node and the line of its call; what depends on it fails with it, and all
// else goes on (ER-2).
class Program : public Callable {
 public:
  // Nothing to call: every call fails.
  Program() = default;

  // Calls and copies: what the cluster runs. Copies that the controller inserts are not among them.
  size_t node_count() const;
  // Arrays from outside that its calls use: the program holds them, and passes them to every launch.
  size_t held_count() const;
  // The program as text, one line for each node, for people.
  std::string ToText() const;

 private:
  friend class api::ProgramState;
  explicit Program(std::shared_ptr<const api::ProgramState> state);

  std::shared_ptr<const api::ProgramState> state_;  // null: nothing to call
};

// Runs `traced` once, on this thread, with arrays that stand for arguments, of the types of `examples`; registers what
// its calls do, and waits until the controller has taken it. Nothing of it runs: the calls that `traced` makes on this
// thread, of any Function of this cluster, and its Array::CopyTo, are recorded. Arrays from outside that they use
// become held arguments. Where a call takes an array that is on another mesh, of the same shards, the controller
// inserts the copy. What `traced` returns are the program's results, which may be arguments.
//
// INVALID_ARGUMENT: a mistake in a call, with its line; an array of another cluster, or of another trace; a result that
// is no array; a held array that a call gives away; a call of a Program, or Trace itself, inside of a trace.
// RESOURCE_EXHAUSTED: more than 16,384 nodes, or too many programs of this session. Other errors: those of the
// controller, which name the node.
//
// Inside, an array has a shape but no elements: Wait and Get fail with FAILED_PRECONDITION. Arrays that outlive the
// trace are of no use.
Result<Program> Trace(const Cluster& cluster, std::string name, const Traced& traced,
                      const std::vector<Array>& examples, Dispatch dispatch = Dispatch::kParallel);

}  // namespace gangway

#endif  // GANGWAY_PROGRAM_H_
