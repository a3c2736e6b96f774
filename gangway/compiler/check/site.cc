// Implementation of site.h.
#include "gangway/compiler/check/site.h"

#include "gangway/base/status.h"

namespace gangway::compiler {

absl::Status ExpectArray(const Site& site, int type, std::span<const int64_t> dims) {
  if (site.shape().element_type() == type && HasDims(site.shape(), dims)) return absl::OkStatus();
  return Bad("its shape is ", Text(site.shape()), ", and its operands give ", Text(type, dims));
}

absl::Status ExpectShape(const Site& site, const Shape& expected) {
  if (Same(site.shape(), expected)) return absl::OkStatus();
  return Bad("its shape is ", Text(site.shape()), ", and its operands give ", Text(expected));
}

absl::Status ExpectResults(const Site& site, std::span<const Shape> expected) {
  if (expected.size() == 1) return ExpectShape(site, expected[0]);
  if (!IsTuple(site.shape()) ||
      static_cast<size_t>(site.shape().tuple_shapes_size()) != expected.size())
    return Bad("its shape is ", Text(site.shape()), ", and it has ", expected.size(), " results");
  for (size_t i = 0; i < expected.size(); ++i) {
    const Shape& part = site.shape().tuple_shapes(static_cast<int>(i));
    if (!Same(part, expected[i]))
      return Bad("result ", i, " is ", Text(part), ", and its operands give ", Text(expected[i]));
  }
  return absl::OkStatus();
}

absl::Status ExpectArrays(const Site& site) {
  for (const Shape* operand : site.operands)
    if (!IsArray(*operand)) return Bad("operand ", Text(*operand), " is not an array");
  return absl::OkStatus();
}

namespace {

absl::Status ExpectParameters(const Callee& callee, std::span<const int> types) {
  if (!callee.is_for_elements)
    return NotTaken(
        "the computation that it applies to elements has custom calls, collectives, random "
        "numbers, loops, branches or "
        "operations on whole arrays: compute them before");
  if (callee.parameters.size() != types.size())
    return Bad("its computation has ", callee.parameters.size(), " parameters instead of ",
               types.size());
  for (size_t i = 0; i < types.size(); ++i)
    if (!IsScalar(*callee.parameters[i]) || callee.parameters[i]->element_type() != types[i])
      return Bad("parameter ", i, " of its computation is ", Text(*callee.parameters[i]),
                 " instead of ", Text(types[i], {}));
  return absl::OkStatus();
}

absl::Status ExpectScalar(const Shape& result, int type) {
  if (IsScalar(result) && result.element_type() == type) return absl::OkStatus();
  return Bad("its computation gives ", Text(result), " instead of ", Text(type, {}));
}

}  // namespace

absl::Status ExpectScalars(const Callee& callee, std::span<const int> parameters, int result) {
  GANGWAY_RETURN_IF_ERROR(ExpectParameters(callee, parameters));
  return ExpectScalar(*callee.result, result);
}

absl::Status ExpectReducer(const Callee& callee, std::span<const int> types) {
  std::vector<int> parameters(types.begin(), types.end());
  parameters.insert(parameters.end(), types.begin(), types.end());
  GANGWAY_RETURN_IF_ERROR(ExpectParameters(callee, parameters));
  if (types.size() == 1) return ExpectScalar(*callee.result, types[0]);
  if (!IsTuple(*callee.result) ||
      static_cast<size_t>(callee.result->tuple_shapes_size()) != types.size())
    return Bad("its computation gives ", Text(*callee.result), ", and it has ", types.size(),
               " results");
  for (size_t i = 0; i < types.size(); ++i) {
    GANGWAY_RETURN_IF_ERROR(
        ExpectScalar(callee.result->tuple_shapes(static_cast<int>(i)), types[i]));
  }
  return absl::OkStatus();
}

}  // namespace gangway::compiler
