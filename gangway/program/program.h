// The dataflow graph as data: what is computed, independent of where and when it runs. Also its
// text form, its verifier and (interpreter.h) its reference result. Plain values, no threads;
// depends on no code that executes programs.
//
// Values are numbered in the order in which nodes define them, from 0. A node's inputs are defined
// before it, so the order of the nodes is one legal schedule; every other legal one gives the same
// arrays (DF-3).
#ifndef GANGWAY_PROGRAM_PROGRAM_H_
#define GANGWAY_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::program {

using ValueId = uint32_t;

enum class Kind {
  kArgument,  // an array from the caller
  kCall,      // one run of an executable: a gang of one execute per device
  kTransfer,  // the same shards on other devices
  kResult,    // returns a value
};

struct Node {
  Kind kind = Kind::kArgument;
  std::string executable;         // kCall: letters, digits and _ . : - /
  std::vector<ValueId> inputs;    // kTransfer and kResult: one
  std::vector<uint32_t> donated;  // kCall: indices into `inputs`, increasing
  std::vector<uint32_t> devices;  // of every output, shard i on devices[i]; empty for kResult
  ValueId first_output = 0;
  uint32_t output_count = 0;  // kArgument and kTransfer: one; kResult: none

  bool operator==(const Node&) const = default;
};

class Program {
 public:
  ValueId AddArgument(std::vector<uint32_t> devices);
  // Returns the first of `output_count` consecutive values.
  ValueId AddCall(std::string executable, std::vector<ValueId> inputs,
                  std::vector<uint32_t> donated, uint32_t output_count,
                  std::vector<uint32_t> devices);
  ValueId AddTransfer(ValueId input, std::vector<uint32_t> devices);
  void AddResult(ValueId input);

  const std::vector<Node>& nodes() const { return nodes_; }
  uint32_t value_count() const { return value_count_; }

  bool operator==(const Program&) const = default;

 private:
  ValueId Add(Node node);

  std::vector<Node> nodes_;
  uint32_t value_count_ = 0;
};

// INVALID_ARGUMENT naming the node and the rule that it breaks: inputs defined before use and not
// donated earlier, a donated value not used twice by its call, distinct devices, as many devices
// after a transfer as before, legal names.
absl::Status Verify(const Program& program);

// One line per node:
//   %0 = argument @0,1
//   %1, %2 = call step(%0, donate %0) @0,1
//   %3 = transfer %1 @2,3
//   result %3
// A call without outputs has no left side. Parse(Print(p)) returns p for every program that
// verifies.
std::string Print(const Program& program);

// INVALID_ARGUMENT naming the line. Empty lines and text after '#' are skipped. Does not verify.
absl::StatusOr<Program> Parse(std::string_view text);

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_PROGRAM_H_
