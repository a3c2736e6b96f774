// Rules of opcodes that call computations.
#include <algorithm>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/applied.h"
#include "gangway/compiler/check/comparator.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

absl::Status ExpectArguments(const Callee& callee, std::span<const Shape* const> arguments) {
  if (callee.parameters.size() != arguments.size())
    return Bad("it calls a computation of ", callee.parameters.size(), " parameters with ",
               arguments.size(), " operands");
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!Same(*callee.parameters[i], *arguments[i]))
      return Bad("parameter ", i, " of what it calls is ", Text(*callee.parameters[i]),
                 ", and the operand is ", Text(*arguments[i]));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCall(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArguments(*site.callees[0], site.operands));
  return ExpectShape(site, *site.callees[0]->result);
}

absl::Status CheckWhile(const Site& site) {
  const Callee& body = *site.callees[0];
  const Callee& condition = *site.callees[1];
  GANGWAY_RETURN_IF_ERROR(ExpectArguments(body, site.operands));
  GANGWAY_RETURN_IF_ERROR(ExpectArguments(condition, site.operands));
  if (!IsScalar(*condition.result) || !IsPred(condition.result->element_type()))
    return Bad("its condition gives ", Text(*condition.result), " instead of pred[]");
  if (!Same(*body.result, site.operand(0)))
    return Bad("its body makes ", Text(*body.result), " of ", Text(site.operand(0)));
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckConditional(const Site& site) {
  const Shape& which = site.operand(0);
  const size_t branches = site.callees.size();
  const bool is_pred = IsScalar(which) && IsPred(which.element_type());
  const bool is_index = IsScalar(which) && which.element_type() == xla::TYPE_S32;
  if ((!is_pred && !is_index) || (is_pred && branches != 2) || branches == 0)
    return Bad("it chooses one of ", branches, " branches by ", Text(which));
  if (site.operands.size() != branches + 1)
    return Bad("it has ", site.operands.size(), " operands for ", branches, " branches");
  for (size_t i = 0; i < branches; ++i) {
    GANGWAY_RETURN_IF_ERROR(ExpectArguments(*site.callees[i], site.operands.subspan(i + 1, 1)),
                            "branch ", i);
    GANGWAY_RETURN_IF_ERROR(ExpectShape(site, *site.callees[i]->result), "branch ", i);
  }
  return absl::OkStatus();
}

absl::Status CheckMap(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& first = site.operand(0);
  const auto dims = SpanOf(site.self.dimensions());
  if (static_cast<int64_t>(dims.size()) != Rank(first) || !AreAscending(dims, Rank(first)))
    return Bad("it does not map all dimensions of ", Text(first), " in order");
  std::vector<int> types;
  for (const Shape* operand : site.operands) {
    if (!SameDims(*operand, first))
      return Bad("its operands differ: ", Text(first), " and ", Text(*operand));
    types.push_back(operand->element_type());
  }
  const int result = site.shape().element_type();
  GANGWAY_RETURN_IF_ERROR(ExpectScalars(*site.callees[0], types, result));
  return ExpectArray(site, result, DimsOf(first));
}

absl::Status CheckReduce(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const size_t n = site.operands.size() / 2;
  if (site.operands.size() != 2 * n) return Bad("it has ", site.operands.size(), " operands");
  const Shape& first = site.operand(0);
  const auto along = SpanOf(site.self.dimensions());
  if (!AreDistinct(along, Rank(first)))
    return Bad("it reduces dimensions that ", Text(first), " does not have");
  std::vector<int> types;
  std::vector<Shape> results;
  for (size_t i = 0; i < n; ++i) {
    const Shape& array = site.operand(i);
    const Shape& start = site.operand(n + i);
    if (!SameDims(array, first) || !IsScalar(start) || start.element_type() != array.element_type())
      return Bad("it reduces ", Text(array), " from ", Text(start));
    types.push_back(array.element_type());
    Shape& result = results.emplace_back();
    result.set_element_type(array.element_type());
    for (int64_t d = 0; d < Rank(array); ++d)
      if (!Contains(along, d)) result.add_dimensions(Dim(array, d));
  }
  GANGWAY_RETURN_IF_ERROR(ExpectReducer(*site.callees[0], types));
  return ExpectResults(site, results);
}

namespace {

// A comparator is looked at once, however many sorts have it.
bool IsKnownOrder(const Site& site) {
  const Callee* comparator = site.callees[0];
  const auto [known, is_new] = site.program.orders.try_emplace(comparator, false);
  if (is_new) known->second = IsStrictWeakOrder(*comparator);
  return known->second;
}

}  // namespace

absl::Status CheckSort(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& first = site.operand(0);
  if (site.self.dimensions_size() != 1 || !AreDistinct(SpanOf(site.self.dimensions()), Rank(first)))
    return Bad("it does not name a dimension of ", Text(first));
  std::vector<int> types;
  std::vector<Shape> results;
  for (const Shape* operand : site.operands) {
    if (!SameDims(*operand, first))
      return Bad("its operands differ: ", Text(first), " and ", Text(*operand));
    types.insert(types.end(), 2, operand->element_type());
    results.push_back(*operand);
  }
  GANGWAY_RETURN_IF_ERROR(ExpectScalars(*site.callees[0], types, xla::TYPE_PRED));
  if (!site.self.is_stable() && !IsKnownOrder(site)) site.program.checked.wants_stable_sorts = true;
  return ExpectResults(site, results);
}

namespace {

absl::Status CheckAliasing(const Site& site) {
  for (const auto& alias : site.self.output_operand_aliasing()) {
    const int64_t operand = alias.operand_index();
    if (operand < 0 || operand >= static_cast<int64_t>(site.operands.size()))
      return Bad("it shares a result with operand ", operand, " of ", site.operands.size());
    const Shape* out = PartAt(site.shape(), alias.output_shape_index());
    const Shape* in =
        PartAt(site.operand(static_cast<size_t>(operand)), alias.operand_shape_index());
    if (out == nullptr || in == nullptr || !IsArray(*out) || !Same(*out, *in))
      return Bad("it shares a result with operand ", operand, ", whose shape is another one");
    for (const auto& other : site.self.output_operand_aliasing()) {
      if (&other == &alias) break;
      if (std::ranges::equal(other.output_shape_index(), alias.output_shape_index()) ||
          (other.operand_index() == operand &&
           std::ranges::equal(other.operand_shape_index(), alias.operand_shape_index())))
        return Bad("it shares a result or operand ", operand, " twice");
    }
  }
  return absl::OkStatus();
}

// More results that share buffers than this are no call that exists; the comparison above is quadratic.
constexpr int kAliasesMax = 256;

}  // namespace

absl::Status CheckCustomCallSite(const Site& site) {
  if (site.self.output_operand_aliasing_size() > kAliasesMax)
    return Bad("it shares ", site.self.output_operand_aliasing_size(), " results; at most ",
               kAliasesMax, " are taken");
  GANGWAY_RETURN_IF_ERROR(CheckAliasing(site));
  for (const Callee* callee : site.callees)
    if (AppliesToElements(site.self) && !callee->is_for_elements)
      return NotTaken("the computation that it calls does more than compute with elements");
  for (const Shape& shape : site.self.operand_shapes_with_layout()) {
    GANGWAY_RETURN_IF_ERROR(CheckShape(shape));
  }
  return site.program.check_custom_call(CustomCallSite{
      .call = site.self, .operands = site.operands, .computations = site.program.by_id});
}

}  // namespace gangway::compiler
