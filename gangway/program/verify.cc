// Implementation of program.h: verifying programs.
#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/status.h"
#include "gangway/program/names.h"
#include "gangway/program/program.h"
#include "gangway/program/shared_shards.h"

namespace gangway::program {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool Increases(const std::vector<uint32_t>& indices) {
  return std::ranges::is_sorted(indices, std::less_equal<>());
}

// Of its nodes in their order. Errors do not name the node.
class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program),
        checked_lists_(program.device_lists().size()),
        checked_functions_(program.functions().size()) {}

  absl::Status Check(const Node& node);

 private:
  enum class State : uint8_t { kUsable, kDonated, kFreed };
  struct Known {
    State state = State::kUsable;
    uint32_t user = 0;   // the last node that uses it, counted from 1
    bool twice = false;  // by that node
  };

  absl::Status CheckDevices(DevicesId list);
  absl::Status CheckFunction(FunctionId function);
  absl::Status CheckForm(const Node& node);
  absl::Status CheckCallForm(const Node& node);
  absl::Status CheckViewForm(const Node& node) const;
  absl::Status CheckInput(const Node& node, ValueId input);
  absl::Status CheckDonations(const Node& node);
  absl::Status CheckTransfer(const Node& node) const;
  absl::Status CheckView(const Node& node);

  const Devices* DevicesOf(const std::optional<DevicesId>& list) const {
    return list ? &program_.device_lists()[*list] : nullptr;
  }
  const Devices* DevicesOf(ValueId value) const {
    return DevicesOf(program_.values()[value].devices);
  }

  const Program& program_;
  std::vector<Known> known_;  // of the values defined so far
  SharedShards shared_;
  uint32_t checked_ = 0;    // nodes
  bool has_begun_ = false;  // with nodes that are no arguments
  std::vector<bool> checked_lists_, checked_functions_;
};

absl::Status Verifier::CheckDevices(DevicesId list) {
  if (list >= program_.device_lists().size())
    return Broken("names list ", list, " of ", program_.device_lists().size(), " lists of devices");
  if (checked_lists_[list]) return absl::OkStatus();
  checked_lists_[list] = true;
  const Devices& devices = program_.device_lists()[list];
  if (devices.empty()) return Broken("names no device");
  const absl::flat_hash_set<uint32_t> distinct(devices.begin(), devices.end());
  if (distinct.size() != devices.size()) return Broken("names a device twice");
  return absl::OkStatus();
}

absl::Status Verifier::CheckFunction(FunctionId function) {
  if (function >= program_.functions().size())
    return Broken("calls function ", function, " of ", program_.functions().size());
  if (checked_functions_[function]) return absl::OkStatus();
  checked_functions_[function] = true;
  const std::string& name = program_.functions()[function];
  if (IsName(name)) return absl::OkStatus();
  return Broken("calls '", ShortText(name), "'; a name has letters, digits and _ . : - / only");
}

absl::Status Verifier::CheckCallForm(const Node& node) {
  GANGWAY_RETURN_IF_ERROR(CheckFunction(node.function));
  if (!Increases(node.donated)) return Broken("donates indices that do not increase");
  if (!Increases(node.kept)) return Broken("keeps indices that do not increase");
  if (!node.donated.empty() && node.donated.back() >= node.inputs.size())
    return Broken("donates input ", node.donated.back(), ", which it does not have");
  if (!node.kept.empty() && node.kept.back() >= node.inputs.size())
    return Broken("keeps input ", node.kept.back(), ", which it does not have");
  std::vector<uint32_t> both;
  std::ranges::set_intersection(node.donated, node.kept, std::back_inserter(both));
  if (!both.empty()) return Broken("donates and keeps input ", both[0]);
  return absl::OkStatus();
}

absl::Status Verifier::CheckViewForm(const Node& node) const {
  if (node.inputs.empty()) return Broken("is a view of nothing");
  if (node.shards.empty() && node.inputs.size() != 1)
    return Broken("is a replica of ", node.inputs.size(), " values");
  if (!node.shards.empty() && node.shards.size() != node.inputs.size())
    return Broken("names ", node.shards.size(), " shards of ", node.inputs.size(), " values");
  const Devices* devices = DevicesOf(node.devices);
  const size_t shards = std::max<size_t>(node.shards.size(), 1);
  if (devices != nullptr && devices->size() != shards)
    return Broken("names ", shards, " shards for ", devices->size(), " devices");
  return absl::OkStatus();
}

// What a node of its kind may have.
absl::Status Verifier::CheckForm(const Node& node) {
  const Kind kind = node.kind;
  const bool has_output = kind != Kind::kResult && kind != Kind::kFree;
  if (node.devices) GANGWAY_RETURN_IF_ERROR(CheckDevices(*node.devices));
  if (node.source && *node.source >= program_.sources().size())
    return Broken("names source ", *node.source, " of ", program_.sources().size());
  if (!has_output && node.devices) return Broken("has no output but names devices");
  if (kind == Kind::kTransfer && !node.devices) return Broken("names no devices");
  if (!node.memory_kind.empty() && (kind != Kind::kTransfer || !IsName(node.memory_kind)))
    return Broken("names the memory '", ShortText(node.memory_kind), "'");
  if (kind != Kind::kCall &&
      (node.function != 0 || !node.donated.empty() || !node.kept.empty() || node.is_irregular))
    return Broken("is not a call but names a function, donates or is irregular");
  if (kind != Kind::kView && !node.shards.empty()) return Broken("is not a view but names shards");
  if (kind == Kind::kCall) return CheckCallForm(node);
  if (node.output_count != (has_output ? 1 : 0)) return Broken("has the wrong number of outputs");
  if (kind == Kind::kView) return CheckViewForm(node);
  const size_t inputs = kind == Kind::kArgument ? 0 : 1;
  if (kind == Kind::kFree ? node.inputs.empty() : node.inputs.size() != inputs)
    return Broken("has the wrong number of inputs");
  if (kind == Kind::kArgument && has_begun_) return Broken("is an argument behind other nodes");
  return absl::OkStatus();
}

absl::Status Verifier::CheckInput(const Node& node, ValueId input) {
  if (input >= known_.size()) return Broken("uses %", input, ", which is not defined before it");
  Known& known = known_[input];
  const bool takes_shards = !node.shards.empty();  // of which SharedShards knows
  if (known.state == State::kDonated && !takes_shards)
    return Broken("uses %", input, ", which was donated before");
  if (known.state == State::kFreed) return Broken("uses %", input, ", which was freed before");
  if (node.kind == Kind::kFree) {
    known.state = State::kFreed;
  } else if (shared_.IsSpoiled(input) && !takes_shards) {
    return Broken("uses %", input, ", of which a shard was donated before");
  }
  known.twice = known.user == checked_;
  known.user = checked_;
  return absl::OkStatus();
}

absl::Status Verifier::CheckDonations(const Node& node) {
  for (uint32_t index : node.donated) {
    Known& known = known_[node.inputs[index]];
    if (known.twice) return Broken("donates %", node.inputs[index], " and uses it twice");
    known.state = State::kDonated;
    shared_.Donate(node.inputs[index]);
  }
  if (node.donated.empty()) return absl::OkStatus();
  for (ValueId input : node.inputs)
    if (shared_.IsSpoiled(input))
      return Broken("donates a shard of %", input, " and uses it twice");
  return absl::OkStatus();
}

absl::Status Verifier::CheckTransfer(const Node& node) const {
  const Devices* from = DevicesOf(node.inputs[0]);
  const Devices* to = DevicesOf(node.devices);
  if (from == nullptr || from->size() == to->size()) return absl::OkStatus();
  return Broken("moves ", from->size(), " shards to ", to->size(), " devices");
}

absl::Status Verifier::CheckView(const Node& node) {
  const Devices* devices = DevicesOf(node.devices);
  for (size_t i = 0; i < node.shards.size(); ++i) {
    const Devices* from = DevicesOf(node.inputs[i]);
    if (from == nullptr) continue;
    if (node.shards[i] >= from->size()) {
      return Broken("takes shard ", node.shards[i], " of %", node.inputs[i], ", which has ",
                    from->size());
    }
    const uint32_t device = (*from)[node.shards[i]];
    if (devices != nullptr && (*devices)[i] != device) {
      return Broken("takes shard ", node.shards[i], " of %", node.inputs[i],
                    ", which is on device ", device, ", for device ", (*devices)[i]);
    }
  }
  return shared_.AddView(node);
}

absl::Status Verifier::Check(const Node& node) {
  ++checked_;
  GANGWAY_RETURN_IF_ERROR(CheckForm(node));
  has_begun_ |= node.kind != Kind::kArgument;
  for (ValueId input : node.inputs) GANGWAY_RETURN_IF_ERROR(CheckInput(node, input));
  GANGWAY_RETURN_IF_ERROR(CheckDonations(node));
  if (node.kind == Kind::kTransfer) GANGWAY_RETURN_IF_ERROR(CheckTransfer(node));
  if (node.kind == Kind::kView) GANGWAY_RETURN_IF_ERROR(CheckView(node));
  known_.resize(known_.size() + node.output_count);
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Program& program) {
  Verifier verifier(program);
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    const absl::Status status = verifier.Check(program.nodes()[i]);
    if (!status.ok()) return Broken(program.Describe(i), " ", status.message());
  }
  return absl::OkStatus();
}

}  // namespace gangway::program
