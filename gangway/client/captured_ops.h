// For the tests of captured runs: operations, and what programs that were captured do.
#ifndef GANGWAY_CLIENT_CAPTURED_OPS_H_
#define GANGWAY_CLIENT_CAPTURED_OPS_H_

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/client/captured_run.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

using Numbers = std::vector<uint64_t>;

inline wire::Op CallOf(uint64_t executable, const Numbers& arguments, const Numbers& results,
                       std::vector<uint32_t> keep = {}) {
  wire::Op op;
  op.mutable_call()->set_executable(executable);
  op.mutable_call()->mutable_arguments()->Add(arguments.begin(), arguments.end());
  op.mutable_call()->mutable_results()->Add(results.begin(), results.end());
  op.mutable_call()->mutable_keep()->Add(keep.begin(), keep.end());
  return op;
}

inline wire::Op CopyOf(const Numbers& sources, const Numbers& results,
                       std::vector<uint32_t> devices, std::string memory_kind = "") {
  wire::Op op;
  op.mutable_copy()->mutable_sources()->Add(sources.begin(), sources.end());
  op.mutable_copy()->mutable_results()->Add(results.begin(), results.end());
  op.mutable_copy()->mutable_devices()->Add(devices.begin(), devices.end());
  op.mutable_copy()->set_memory_kind(std::move(memory_kind));
  return op;
}

struct ShardNumber {
  uint64_t array;
  uint32_t shard;
};

inline wire::Op RegroupOf(uint64_t result, const std::vector<ShardNumber>& shards) {
  wire::Op op;
  auto& to = *op.mutable_regroup()->add_results();
  to.set_array(result);
  for (const ShardNumber& shard : shards) {
    to.add_shards()->set_array(shard.array);
    to.mutable_shards()->rbegin()->set_shard(shard.shard);
  }
  return op;
}

inline wire::Op ReplicaOf(uint64_t result, uint64_t array) {
  wire::Op op;
  op.mutable_regroup()->add_results()->set_array(result);
  op.mutable_regroup()->mutable_results(0)->set_replica_of(array);
  return op;
}

inline wire::Op Gathered(wire::Op call, uint32_t argument, const std::vector<ShardNumber>& shards) {
  auto& gathered = *call.mutable_call()->add_gathered();
  gathered.set_argument(argument);
  for (const ShardNumber& shard : shards) {
    gathered.add_arrays(shard.array);
    gathered.add_shards(shard.shard);
  }
  return call;
}

inline wire::Op DropOf(const Numbers& arrays) {
  wire::Op op;
  op.mutable_drop()->mutable_handles()->Add(arrays.begin(), arrays.end());
  return op;
}

inline CapturedRun::Ops OpsOf(const std::vector<wire::Op>& ops) { return {ops.begin(), ops.end()}; }

// What operations do, as text that is the same for runs that do the same: what each array is, in terms of the arrays
// from outside, and the nodes in their order. Knows the programs that were registered.
class Meaning {
 public:
  void Apply(const CapturedRun::Ops& ops) {
    for (const wire::Op& op : ops) Apply(op);
  }
  // Since the last call.
  std::vector<std::string> TakeNodes() { return std::exchange(nodes_, {}); }
  // All arrays that the session has.
  const std::map<uint64_t, std::string>& arrays() const { return arrays_; }

 private:
  using Values = std::vector<std::string>;

  void Apply(const wire::Op& op) {
    if (op.has_call()) {
      Values inputs;
      for (const uint64_t array : op.call().arguments()) inputs.push_back(Of(array));
      for (const auto& gathered : op.call().gathered())
        inputs[gathered.argument()] = View(ValuesOf(gathered.arrays()), gathered.shards());
      const std::string node = Node(absl::StrCat("call ", op.call().executable(), " keep ",
                                                 absl::StrJoin(op.call().keep(), ","), " of ",
                                                 absl::StrJoin(inputs, " ")));
      for (int i = 0; i < op.call().results_size(); ++i)
        arrays_[op.call().results(i)] = Output(node, i);
    } else if (op.has_copy()) {
      for (int i = 0; i < op.copy().sources_size(); ++i) {
        arrays_[op.copy().results(i)] =
            Transfer(Of(op.copy().sources(i)), op.copy().devices(), op.copy().memory_kind());
      }
    } else if (op.has_regroup()) {
      for (const auto& result : op.regroup().results()) {
        Values inputs;
        std::vector<uint32_t> shards;
        for (const auto& shard : result.shards()) {
          inputs.push_back(Of(shard.array()));
          shards.push_back(shard.shard());
        }
        if (result.replica_of() != 0) inputs = {Of(result.replica_of())};
        arrays_[result.array()] = View(inputs, shards);
      }
    } else if (op.has_drop()) {
      for (const uint64_t array : op.drop().handles()) arrays_.erase(array);
    } else if (op.has_register_program()) {
      programs_[op.register_program().program()] = op.register_program().definition();
    } else if (op.has_drop_programs()) {
      for (const uint64_t program : op.drop_programs().handles()) programs_.erase(program);
    } else if (op.has_launch()) {
      Launch(op.launch());
    }
  }

  void Launch(const wire::LaunchOp& launch) {
    const wire::Program& program = programs_.at(launch.program());
    Values values = ValuesOf(launch.arguments());
    values.resize(program.arguments());
    const size_t before = nodes_.size();
    for (const wire::ProgramNode& node : program.nodes()) {
      Values inputs;
      if (node.has_call()) {
        for (const uint32_t input : node.call().inputs()) inputs.push_back(values.at(input));
        const std::string text = Node(absl::StrCat(
            "call ", program.executables(static_cast<int>(node.call().executable())), " keep ",
            absl::StrJoin(node.call().keep(), ","), " of ", absl::StrJoin(inputs, " ")));
        for (uint32_t i = 0; i < node.call().outputs(); ++i) values.push_back(Output(text, i));
      } else if (node.has_transfer()) {
        values.push_back(
            Transfer(values.at(node.transfer().input()),
                     program.device_lists(static_cast<int>(node.transfer().devices())).devices(),
                     node.transfer().memory_kind()));
      } else {
        for (const uint32_t input : node.view().inputs()) inputs.push_back(values.at(input));
        values.push_back(View(inputs, node.view().shards()));
      }
    }
    if (nodes_.size() - before != launch.nodes()) nodes_.emplace_back("another number of nodes");
    for (int i = 0; i < launch.results_size(); ++i)
      arrays_[launch.results(i)] = values.at(program.results(i));
  }

  std::string Of(uint64_t array) const {
    const auto known = arrays_.find(array);
    return known == arrays_.end() ? absl::StrCat("outside ", array) : known->second;
  }
  template <typename Arrays>
  Values ValuesOf(const Arrays& arrays) const {
    Values values;
    for (const uint64_t array : arrays) values.push_back(Of(array));
    return values;
  }
  // Nodes are named by their number, so that texts stay short.
  std::string Node(const std::string& what) {
    nodes_.push_back(what);
    return absl::StrCat("#", ++count_);
  }
  static std::string Output(const std::string& node, uint64_t index) {
    return absl::StrCat(node, ".", index);
  }
  template <typename Devices>
  std::string Transfer(const std::string& input, const Devices& devices, const std::string& kind) {
    return Node(absl::StrCat("copy ", input, " to ", absl::StrJoin(devices, ","), kind));
  }
  template <typename Shards>
  static std::string View(const Values& inputs, const Shards& shards) {
    return absl::StrCat("(", absl::StrJoin(inputs, "+"), "[", absl::StrJoin(shards, ","), "])");
  }

  std::map<uint64_t, std::string> arrays_;
  std::map<uint64_t, wire::Program> programs_;
  std::vector<std::string> nodes_;
  uint64_t count_ = 0;
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CAPTURED_OPS_H_
