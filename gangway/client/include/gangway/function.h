// What can be called with arrays: a Function, which is compiled StableHLO, and a Program (program.h).
//
//   Array y = f(x);                              // one result
//   Array z = f(x, Donate(y));                   // y's memory may become z's
//   std::vector<Array> results = f({x, y});      // all results
//   auto [a, b] = f.Call<2>({x, y});
//
// A call returns at once, before its arguments have been computed. It fails only through its results: a wrong number of
// arguments, or one of another shape, element type, mesh or cluster than is taken there, makes arrays with
// INVALID_ARGUMENT, which say what was given, what is taken, and what to do. So does another number of results than the
// form of the call asks for. While too many calls have not ended (16,384), a call waits until some have.
//
// Threading: values that never change; any thread may call them. Calls of one thread run in its order where they use
// the same devices.
#ifndef GANGWAY_FUNCTION_H_
#define GANGWAY_FUNCTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "sharding.h"

namespace gangway {

namespace api {
class Callee;
class FunctionState;
}  // namespace api

// An argument of a call.
class Argument {
 public:
  // The call reads the array, and the caller keeps it.
  Argument(Array array) : array_(std::move(array)) {}  // NOLINT: implicit

  const Array& array() const { return array_; }  // what is passed
  // Whether the caller gives it away.
  bool is_donated() const { return is_donated_; }

 private:
  friend Argument Donate(Array array);
  Array array_;
  bool is_donated_ = false;
};

// Gives an array away: if the function was compiled with this parameter as a donated one (`tf.aliasing_output` or
// `jax.buffer_donor` in its text), its result takes the array's memory. All copies of the array are of no use after
// that call: what is made of them fails. For a parameter that the function does not donate, it changes nothing. The
// arrays that a call only reads are never given away, also if the last copy is moved into it.
inline Argument Donate(Array array) {
  Argument argument(std::move(array));
  argument.is_donated_ = true;
  return argument;
}

// The calls of a Function or a Program. `where` is the caller's line: nodes of programs are named by it.
class Callable {
 public:
  // One result, of no arguments.
  Array operator()(std::source_location where = std::source_location::current()) const {
    return One({}, where);
  }
  // One result, of one argument.
  Array operator()(const Argument& first,
                   std::source_location where = std::source_location::current()) const {
    return One(std::span(&first, 1), where);
  }
  // One result, of two.
  Array operator()(const Argument& first, const Argument& second,
                   std::source_location where = std::source_location::current()) const {
    return One(std::array{first, second}, where);
  }
  // One result, of three. For more, use Call<1>.
  Array operator()(const Argument& first, const Argument& second, const Argument& third,
                   std::source_location where = std::source_location::current()) const {
    return One(std::array{first, second, third}, where);
  }

  // All results, in their order: f({x, y}).
  std::vector<Array> operator()(
      std::initializer_list<Argument> arguments,
      std::source_location where = std::source_location::current()) const {
    return All(std::span(arguments.begin(), arguments.size()), where);
  }
  // All results, of any number of arguments.
  std::vector<Array> operator()(
      std::span<const Argument> arguments,
      std::source_location where = std::source_location::current()) const {
    return All(arguments, where);
  }
  // All results, of arrays of which none is given away.
  std::vector<Array> operator()(
      std::span<const Array> arguments,
      std::source_location where = std::source_location::current()) const {
    return All(std::vector<Argument>(arguments.begin(), arguments.end()), where);
  }
  // N results: the call fails if it has another number of them.
  template <size_t N>
  std::array<Array, N> Call(std::initializer_list<Argument> arguments,
                            std::source_location where = std::source_location::current()) const {
    std::array<Array, N> results;
    Into(std::span(arguments.begin(), arguments.size()), results, where);
    return results;
  }

  // For people: the name of the module in a function's text, or a program's.
  const std::string& name() const;
  // How many arguments it takes.
  size_t argument_count() const;
  // How many results it gives.
  size_t result_count() const;

 protected:
  Callable() = default;
  explicit Callable(std::shared_ptr<const api::Callee> callee) : callee_(std::move(callee)) {}

 private:
  Array One(std::span<const Argument> arguments, std::source_location where) const {
    Array result;
    Into(arguments, std::span(&result, 1), where);
    return result;
  }
  std::vector<Array> All(std::span<const Argument> arguments, std::source_location where) const;
  void Into(std::span<const Argument> arguments, std::span<Array> results,
            std::source_location where) const;

  std::shared_ptr<const api::Callee> callee_;  // null: nothing to call
};

// How the text of a Function is to be understood.
enum class Partitioning {
  // Each device runs the text on its own shards, as JAX's shard_map does: the text's types are those of shards.
  // Replicas of collectives are positions in the mesh.
  kPerShard,
  // The text is about whole arrays, and the compiler partitions it (SPMD). It says by `mhlo.sharding` or by Shardy's
  // dialect how its parameters and results are split: Sharding::ToAttribute.
  kPartitioned,
};

// What Cluster::Compile has to know beside the text.
struct FunctionOptions {
  Partitioning partitioning = Partitioning::kPerShard;
  // By result: for kPerShard, the shapes of the whole arrays follow from it. None at all: for a mesh of one device.
  std::vector<Sharding> results;
  // By parameter: needed for kPartitioned, on more than one device. None at all: arrays of any sharding over the mesh
  // whose shards have the parameter's shape.
  std::vector<Sharding> parameters;
  // What the text is in: "mlir", or another form that the devices' backend takes.
  std::string format = "mlir";
};

// A compiled function, which runs on the devices of one mesh. Cluster::Compile makes it. When the last copy is gone,
// and all programs that call it, the cluster drops it; calls that were made before still run.
class Function : public Callable {
 public:
  // Nothing to call: every call fails.
  Function() = default;

  const Mesh& mesh() const;
  // Parameters whose memory a result takes, if the argument is given away (Donate); increasing.
  const std::vector<uint32_t>& donated() const;
  // What a call takes on each device beside its arguments, in bytes, as the compiler says.
  uint64_t temporary_bytes() const;

 private:
  friend class api::FunctionState;
  explicit Function(std::shared_ptr<const api::FunctionState> state);

  std::shared_ptr<const api::FunctionState> state_;  // null: nothing to call
};

}  // namespace gangway

#endif  // GANGWAY_FUNCTION_H_
