// Fields of an instruction that belong to some opcodes only. XLA reads them where it finds them: a precision on a call
// ends the process. Internal to gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_OWN_FIELDS_H_
#define GANGWAY_COMPILER_CHECK_OWN_FIELDS_H_

#include "absl/status/status.h"

#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// INVALID_ARGUMENT with the number of a field that is set, and that the instruction's opcode does not have.
absl::Status CheckOwnFields(const xla::hlo::Instruction& self);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_OWN_FIELDS_H_
