// Calls of the script's own functions, which the worker passes on to the session's client (device/pjrt/host_call.h).
// The number that a call carries is looked up by that client alone, so a wrong one fails in its own script. What a rule
// keeps out are calls that JAX makes for jaxlib's handlers, whose attribute is an index or an address in the script.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/compiler/check_calls/call_check.h"

namespace gangway::compiler::calls {
namespace {

// The receiver keeps a list of each call's arrays.
constexpr size_t kArraysMax = 4096;
constexpr int64_t kMicrosecondsMax = 10'000'000;  // of simulated work

// The handler reads dense arrays in row-major order.
void CheckDense(CallCheck& check) {
  if (check.operands().size() > kArraysMax || check.results().size() > kArraysMax)
    return check.Fault(absl::StrCat("it passes more than ", kArraysMax, " arrays"));
  for (size_t i = 0; i < check.operands().size() && !check.failed(); ++i) {
    const Shape* const placed = check.Placed(static_cast<int>(i));
    if (placed == nullptr) return;
    check.Array(*placed, "an operand", /*may_be_token=*/true);
    check.RowMajor(*placed, "an operand");
  }
  for (const Shape* result : check.results()) {
    check.Array(*result, "a result", /*may_be_token=*/true);
    check.RowMajor(*result, "a result");
  }
}

void CheckNumber(CallCheck& check) {
  const Attributes attributes = check.TypedAttributes();
  if (check.failed()) return;
  const auto found = attributes.find("callback");
  check.True(found != attributes.end() && attributes.size() == 1,
             "it has no number of a host callback: only the plugin's door numbers them "
             "(`gangway run --door pjrt`, or gangway.connect(door=\"pjrt\"))");
  if (check.failed()) return;
  check.True(found->second.kind == Attribute::Kind::kInteger && found->second.type == "i64" &&
                 found->second.integer > 0,
             "the number of its host callback is not a positive i64");
}

}  // namespace

void CheckHostCall(CallCheck& check) {
  CheckNumber(check);
  check.NoCallees();
  check.NoAliases();
  CheckDense(check);
}

void CheckLocalHostCall(CallCheck& check) {
  CheckHostCall(check);
  check.True(std::ranges::all_of(
                 check.results(),
                 [](const Shape* each) { return each->element_type() == xla::TYPE_TOKEN; }),
             "it has results, which no single position can give");
}

void CheckSimulatedWork(CallCheck& check) {
  check.True(check.program().settings.simulates_work,
             "it is off: start the cluster with GANGWAY_SIMULATED_WORK=1 in its environment");
  const Attributes attributes = check.TypedAttributes();
  check.Operands(2);
  check.NoCallees();
  check.NoAliases();
  check.True(check.results().size() == 2, "it has not two results");
  if (check.failed()) return;
  const auto found = attributes.find("microseconds");
  check.True(found != attributes.end() && attributes.size() == 1 &&
                 found->second.kind == Attribute::Kind::kInteger && found->second.type == "i64" &&
                 found->second.integer >= 0 && found->second.integer <= kMicrosecondsMax,
             "its microseconds are not an i64 from 0 to 10,000,000");
  for (size_t i = 0; i < 2; ++i) {
    check.Array(*check.operands()[i], "an operand");
    check.Array(*check.results()[i], "a result");
    check.True(SameArray(*check.operands()[i], *check.results()[i]), "it changes a shape");
  }
}

}  // namespace gangway::compiler::calls
