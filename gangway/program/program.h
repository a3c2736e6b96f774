// The dataflow graph as data: what is computed, independent of when it runs. Also its text form and its verifier; the
// passes that make a graph which can be launched are in passes.h, its form on the wire in wire_form.h, and its
// reference result in interpreter.h. Plain values, no threads; depends on no code that executes programs.
//
// Values are numbered in the order in which nodes define them, from 0, the arguments first. A node's inputs are defined
// before it, so the order of the nodes is one legal schedule; every other legal one gives the same arrays (DF-3). A
// result is its value as it is at its node, also if a later call donates that value.
//
// What nodes have in common is in tables, where equal entries are one, and a node names an entry by its index: so a
// graph of many nodes over many devices is small, and values are on the same devices if their indices are equal.
// Entries are added at their first use, so programs of equal nodes have equal tables.
//
// A graph as its client made it says nothing of shapes, and of devices only where its transfers go. Bind (passes.h)
// finds the rest.
#ifndef GANGWAY_PROGRAM_PROGRAM_H_
#define GANGWAY_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/program/array_shape.h"

namespace gangway::program {

using ValueId = uint32_t;
// Indices in the program's tables.
using FunctionId = uint32_t;
using DevicesId = uint32_t;
using ShapeId = uint32_t;
using SourceId = uint32_t;

using Devices = std::vector<uint32_t>;  // shard i of an array is on devices[i]

enum class Kind {
  kArgument,  // an array from the caller
  kCall,      // one run of an executable: a gang of one execute per device
  kTransfer,  // the same shards on other devices, or in another memory
  kView,      // shards of other values, without a copy
  kResult,    // returns a value
  kFree,      // the last use of its inputs is behind it (AddFrees)
};

// Where a node of a bound program comes from. It says nothing of what is computed, and has no text.
struct Origin {
  uint32_t node = 0;         // index of the client's node that it is, or serves
  bool is_inserted = false;  // a transfer of InsertTransfers, of which the client does not know

  bool operator==(const Origin&) const { return true; }
};

struct Node {
  Kind kind = Kind::kArgument;
  FunctionId function = 0;        // kCall
  std::vector<ValueId> inputs;    // kTransfer and kResult: one; kFree: at least one
  std::vector<uint32_t> donated;  // kCall: indices into `inputs`, increasing
  std::vector<uint32_t>
      kept;  // kCall: indices that must not be donated, increasing; Bind empties it
  std::vector<uint32_t>
      shards;  // kView: shard i is shards[i] of inputs[i]; none: one shard of the one input, the
               // first that is not lost
  std::optional<DevicesId>
      devices;              // of every output; absent: not known, or none for kResult and kFree
  std::string memory_kind;  // kTransfer; "": the devices' usual memory
  std::optional<SourceId> source;  // the line of the client's code that made it
  bool is_irregular = false;       // kCall: its outputs' shapes depend on data
  Origin origin;
  ValueId first_output = 0;
  uint32_t output_count = 0;  // kArgument, kTransfer and kView: one; kResult and kFree: none

  bool operator==(const Node&) const = default;
};

// What is known of a value.
struct Value {
  uint32_t node = 0;  // that defines it
  std::optional<ShapeId> shape;
  std::optional<DevicesId> devices;

  bool operator==(const Value&) const = default;
};

class Program {
 public:
  Program() = default;
  explicit Program(std::string name) : name_(std::move(name)) {}

  // The nodes, in their order. Devices that are empty are not known.
  ValueId AddArgument(const Devices& devices = {});
  // Returns the first of `output_count` consecutive values.
  ValueId AddCall(std::string_view function, std::vector<ValueId> inputs,
                  std::vector<uint32_t> donated, uint32_t output_count,
                  const Devices& devices = {});
  ValueId AddTransfer(ValueId input, const Devices& devices, std::string memory_kind = "");
  ValueId AddView(std::vector<ValueId> inputs, std::vector<uint32_t> shards,
                  const Devices& devices = {});
  void AddResult(ValueId input);
  // Any node; `first_output` is set here. Its indices are of this program's tables, which Verify checks.
  ValueId Add(Node node);
  void SetSource(std::string_view source);   // of the last node
  void SetKept(std::vector<uint32_t> kept);  // of the last node
  void SetShape(ValueId value, const ArrayShape& shape);

  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Value>& values() const { return values_; }
  uint32_t value_count() const { return static_cast<uint32_t>(values_.size()); }
  uint32_t argument_count() const { return argument_count_; }
  uint32_t result_count() const { return result_count_; }
  // Calls and transfers: what the cluster runs.
  uint32_t work_count() const { return work_count_; }

  // The tables.
  const std::vector<std::string>& functions() const { return functions_; }
  const std::vector<Devices>& device_lists() const { return device_lists_; }
  const std::vector<ArrayShape>& shapes() const { return shapes_; }
  const std::vector<std::string>& sources() const { return sources_; }
  FunctionId FunctionNamed(std::string_view function);  // adds it, if it is new
  DevicesId ListOf(const Devices& devices);
  ShapeId ShapeIdOf(const ArrayShape& shape);
  SourceId SourceNamed(std::string_view source);

  // For messages, so of long names the beginning: "node 3 (call step, train.py:42)". `function`: the name for people of
  // what it calls, if that is another one than the program's.
  std::string Describe(size_t node, std::string_view function = "") const;

  // Equal nodes over equal tables.
  bool operator==(const Program&) const = default;

 private:
  // Where the entries of the tables are. It says nothing that the tables do not.
  struct Lookups {
    absl::flat_hash_map<std::string, FunctionId> functions;
    absl::flat_hash_map<Devices, DevicesId> device_lists;
    absl::flat_hash_map<ArrayShape, ShapeId> shapes;
    absl::flat_hash_map<std::string, SourceId> sources;
    bool operator==(const Lookups&) const { return true; }
  };

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  uint32_t argument_count_ = 0, result_count_ = 0, work_count_ = 0;
  std::vector<std::string> functions_;
  std::vector<Devices> device_lists_;
  std::vector<ArrayShape> shapes_;
  std::vector<std::string> sources_;
  Lookups lookups_;
};

// INVALID_ARGUMENT naming the node, with its source where known, and the rule that it breaks: inputs defined before use
// and neither donated nor freed before, also not as shards that views share (OB-1), a donated value not used twice by
// its call, distinct devices, as many devices after a transfer as before, shards of a view that its inputs have, on the
// devices that it says, indices that are in the tables, names of functions and memories of letters, digits and _ . : -
// / only, arguments before all other nodes. Rules about devices hold where they are known. Takes time in proportion to
// the nodes, their inputs, and the tables.
absl::Status Verify(const Program& program);

// A first line "program NAME" if it has a name, then one line per node:
//   %0: f32[2] = argument @0,1
//   %1: f32[2], %2 = call step(%0, donate %0, keep %0) @0,1   # the shapes where they are known, likewise the devices
//   %3 = call sort(%2) irregular
//   %4 = transfer %1 @2,3 {pinned_host}
//   %5 = view %1[0], %4[1]
//   %6 = replica of %1
//   result %4
//   free %1, %2
// and behind a node its source, as in ` from "train.py:42"`. A call without outputs has no left side. A name that is
// not one of a function is in quotes, as sources are, with C's escapes. Parse(Print(p)) returns p for every program
// that verifies and whose shapes are of known element types, dense, and in memories with legal names.
std::string Print(const Program& program);

// INVALID_ARGUMENT naming the line. Empty lines and text after '#' are skipped. Does not verify.
absl::StatusOr<Program> Parse(std::string_view text);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_PROGRAM_H_
