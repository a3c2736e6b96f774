// An HLO module under rewriting: its computations and instructions by id, who calls whom, and which computations the
// chain of collectives goes through. Trusts nothing: what Module::Open accepts refers only to what exists.
//
// Threading: none. Ownership: points into the proto, which must not move; the rewriting replaces instructions of one
// computation at a time and keeps all ids that others name.
#ifndef GANGWAY_COLLECTIVE_LOWERING_MODULE_H_
#define GANGWAY_COLLECTIVE_LOWERING_MODULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/xla/hlo_edit.pb.h"

namespace gangway::collective {

// How a computation that the chain goes through gets and returns it.
enum class Chained {
  kNot,
  kEntry,      // it begins and ends here
  kState,      // beside the only parameter, and beside the result: a loop's body, a branch
  kCondition,  // beside the only parameter: a loop's condition, whose result is a bool
  kCall,       // as the last parameter, and beside the result
};

class Module {
 public:
  // INVALID_ARGUMENT: malformed. UNIMPLEMENTED: communication that is not known, or in a computation that the chain
  // cannot reach; the instruction is named.
  static absl::StatusOr<Module> Open(xla::HloModuleEditProto& proto);

  xla::HloModuleEditProto& proto() { return *proto_; }
  const xla::HloComputationEditProto* Find(int64_t computation) const;
  Chained chained(int64_t computation) const;
  // Whether the chain goes through this instruction: a collective, or the call of a computation that it goes through.
  bool IsLink(const xla::HloInstructionEditProto& instruction) const;
  // Whether it holds a link or asks for its position, or the chain goes through it.
  bool IsRewritten(const xla::HloComputationEditProto& computation) const {
    return rewritten_.contains(computation.id()) || chained(computation.id()) != Chained::kNot;
  }

  // Unused by any instruction so far.
  int64_t NewId(int64_t computation);
  // Without those that nothing calls any more.
  void RemoveUncalled();

 private:
  explicit Module(xla::HloModuleEditProto& proto) : proto_(&proto) {}
  absl::Status Index();
  absl::Status CheckIds(const xla::HloComputationEditProto& computation);
  absl::Status FindChained();
  absl::Status Mark(int64_t computation, Chained how, size_t& marked);

  xla::HloModuleEditProto* proto_;
  absl::flat_hash_map<int64_t, int> index_;  // of computations
  absl::flat_hash_map<int64_t, Chained> chained_;
  absl::flat_hash_set<int64_t> holders_;  // computations with a link in them
  absl::flat_hash_set<int64_t>
      rewritten_;  // computations with a collective or a question for the position
  absl::flat_hash_map<int64_t, int64_t> last_;  // by computation: the largest id in it
  int64_t last_id_ = 0;                         // the largest of all
};

absl::Status Malformed(const std::string& why);
// INVALID_ARGUMENT: it calls one of Gangway's targets.
absl::Status CheckNoOwnCall(const xla::HloInstructionEditProto& instruction);
std::string Named(const xla::HloInstructionEditProto& instruction);  // "all-reduce.4 (all-reduce)"

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_LOWERING_MODULE_H_
