// What the rules of check_calls share: one call under check, which keeps the first fault that a rule finds. Internal to
// compiler/check_calls.
#ifndef GANGWAY_COMPILER_CHECK_CALLS_CALL_CHECK_H_
#define GANGWAY_COMPILER_CHECK_CALLS_CALL_CHECK_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/compiler/check_calls/attributes.h"
#include "gangway/compiler/check_calls/check_calls.h"
#include "gangway/compiler/check_calls/custom_call.h"
#include "gangway/compiler/check_calls/sharding_text.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::compiler::calls {

using Shape = xla::hlo::Shape;

// XLA's numbers of the interfaces of a custom call.
inline constexpr int32_t kOriginalInterface = 1;
inline constexpr int32_t kStatusInterface = 2;
inline constexpr int32_t kTypedInterface = 4;

// What the rules read of the module.
struct CallProgram {
  CallSettings settings;
  // Of instructions that have one, by id. Null: several instructions have the id.
  absl::flat_hash_map<int64_t, const xla::hlo::Sharding*> shardings;
  absl::StatusOr<TextMeshes> meshes = TextMeshes();
};

// A result that may lie in the memory of an operand.
struct AllowedAlias {
  int result = 0;
  int operand = 0;
};

class CallCheck {
 public:
  CallCheck(const CustomCallSite& site, const CallProgram& program);

  const xla::hlo::Instruction& call() const { return site_.call; }
  const CustomCallSite& site() const { return site_; }
  const CallProgram& program() const { return program_; }
  std::span<const Shape* const> operands() const { return site_.operands; }
  // The parts of a tuple, or the one result.
  const std::vector<const Shape*>& results() const { return results_; }
  bool yields_tuple() const { return call().shape().element_type() == xla::TYPE_TUPLE; }

  // Faults if it does not hold. The first fault counts.
  void True(bool holds, std::string_view otherwise);
  void Fault(std::string text);
  bool failed() const { return !fault_.empty(); }
  // INVALID_ARGUMENT, if there was a fault.
  absl::Status status() const;

  void Interface(std::initializer_list<int32_t> allowed);
  void Operands(int count);
  void NoCallees();
  void NoAliases();
  void NoConfig();
  // Faults for aliases that are not among these, and between unequal shapes.
  void Aliases(std::span<const AllowedAlias> allowed);
  // Of a typed call. Empty after a fault.
  Attributes TypedAttributes();
  // The text of a frontend attribute; a fault if it has none.
  std::string FrontendAttribute(std::string_view name);

  // Arrays, in plain memory: no tiles, no padding, no size of elements of its own. `may_be_token`: or a token.
  void Array(const Shape& shape, std::string_view name, bool may_be_token = false);
  // The layout that the call asks of an operand: itself with another layout. Null after a fault.
  const Shape* Placed(int operand);
  // A fault for an empty array that is not row-major: XLA CPU would divide by its size.
  void RowMajor(const Shape& shape, std::string_view name);
  void ColumnMajor(const Shape& shape, std::string_view name);
  // One operand, one result of the same shape, nothing else: calls that only say something about an array.
  void SameShape();

 private:
  const CustomCallSite& site_;
  const CallProgram& program_;
  std::vector<const Shape*> results_;
  std::string fault_;
};

std::string ShapeText(const Shape& shape);
// Element type and dimensions.
bool SameArray(const Shape& a, const Shape& b);
bool SameLayout(const Shape& a, const Shape& b);
bool IsRowMajor(const Shape& shape);

// A rule judges the call, and says so by faults.
using CallRule = void (*)(CallCheck&);

// sharding_rules.cc
void CheckSharding(CallCheck& check);
void CheckFullToShard(CallCheck& check);
void CheckShardToFull(CallCheck& check);
void CheckResultSharding(CallCheck& check);
void CheckGlobalToLocal(CallCheck& check);
void CheckLocalToGlobal(CallCheck& check);
void CheckShardingGroup(CallCheck& check);
void CheckLayoutConstraint(CallCheck& check);
void CheckPlacement(CallCheck& check);
void CheckAsked(CallCheck& check);

// callback_rules.cc
void CheckHostCall(CallCheck& check);
void CheckLocalHostCall(CallCheck& check);
void CheckSimulatedWork(CallCheck& check);

// topk_rules.cc
void CheckTopK(CallCheck& check);

// lapack_rules.cc
void CheckLapack(CallCheck& check);

// gpu_rules.cc
void CheckGpuSolver(CallCheck& check);
void CheckThreefry(CallCheck& check);
void CheckDeviceCode(CallCheck& check);

}  // namespace gangway::compiler::calls

#endif  // GANGWAY_COMPILER_CHECK_CALLS_CALL_CHECK_H_
