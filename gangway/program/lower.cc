// Implementation of Lower in passes.h.
#include "gangway/base/status.h"
#include "gangway/program/passes.h"

namespace gangway::program {

absl::StatusOr<Program> Lower(const Program& program, std::span<const ArgumentType> arguments,
                              const FunctionTypes& functions) {
  GANGWAY_RETURN_IF_ERROR(Verify(program));
  GANGWAY_ASSIGN_OR_RETURN(const Program bound, Bind(program, arguments, functions));
  GANGWAY_RETURN_IF_ERROR(Verify(bound));
  GANGWAY_ASSIGN_OR_RETURN(const Program moving, InsertTransfers(bound));
  return AddFrees(Order(moving));
}

}  // namespace gangway::program
