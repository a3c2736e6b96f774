// The call that XLA CPU makes of a sort whose first elements alone are used. Its runtime takes the number of values to
// copy from the result and does not compare it with the operand.
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"

#include "gangway/compiler/check_calls/call_check.h"

namespace gangway::compiler::calls {
namespace {

// The runtime keeps the largest in descending order, whatever the computation says; XLA's passes read that it compares.
void CheckComparator(CallCheck& check) {
  if (check.call().called_computation_ids_size() == 0) return;
  check.True(check.call().called_computation_ids_size() == 1, "it calls several computations");
  if (check.failed()) return;
  const auto found = check.site().computations.find(check.call().called_computation_ids(0));
  if (found == check.site().computations.end())
    return check.Fault("it calls a computation that the program does not have");
  const xla::hlo::ProgramShape& shape = found->second->program_shape();
  check.True(shape.parameters_size() == 2 || shape.parameters_size() == 4,
             "its comparator has neither two nor four parameters");
  for (int i = 0; i < shape.parameters_size() && !check.failed(); ++i) {
    const int32_t type = i < 2 ? xla::TYPE_F32 : xla::TYPE_S32;
    check.True(
        shape.parameters(i).element_type() == type && shape.parameters(i).dimensions_size() == 0,
        "a parameter of its comparator is no scalar of the type that it compares");
  }
  check.True(
      shape.result().element_type() == xla::TYPE_PRED && shape.result().dimensions_size() == 0,
      "its comparator does not yield a pred");
}

}  // namespace

void CheckTopK(CallCheck& check) {
  check.Interface({0, kOriginalInterface});
  check.Operands(1);
  check.NoAliases();
  check.NoConfig();
  check.True(check.yields_tuple() && check.results().size() == 2,
             "it does not yield values and their indices");
  CheckComparator(check);
  if (check.failed()) return;
  const Shape& operand = *check.operands()[0];
  const int rank = operand.dimensions_size();
  check.Array(operand, "its operand");
  check.RowMajor(operand, "its operand");
  check.True(operand.element_type() == xla::TYPE_F32 && (rank == 1 || rank == 2),
             "its operand is not f32 with one or two dimensions");
  const int32_t types[] = {xla::TYPE_F32, xla::TYPE_S32};
  for (size_t i = 0; i < 2 && !check.failed(); ++i) {
    const Shape& result = *check.results()[i];
    check.Array(result, "a result");
    check.RowMajor(result, "a result");
    check.True(result.element_type() == types[i], "a result has another type than f32 and s32");
    check.True(result.dimensions_size() == rank &&
                   (rank == 1 || result.dimensions(0) == operand.dimensions(0)),
               "a result has another number of rows than its operand");
    if (check.failed()) return;
    const int64_t k = result.dimensions(rank - 1), n = operand.dimensions(rank - 1);
    if (k < 1 || k > n || n > std::numeric_limits<int32_t>::max())
      check.Fault(absl::StrCat("it takes ", k, " of ", n, " values"));
  }
  if (check.failed()) return;
  check.True(check.results()[0]->dimensions(rank - 1) == check.results()[1]->dimensions(rank - 1),
             "it has not one index for each value");
}

}  // namespace gangway::compiler::calls
