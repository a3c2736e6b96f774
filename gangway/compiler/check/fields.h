// Fields that the messages of hlo_program.proto do not have: no rule judges what they say, so they are refused.
#ifndef GANGWAY_COMPILER_CHECK_FIELDS_H_
#define GANGWAY_COMPILER_CHECK_FIELDS_H_

#include "absl/status/status.h"

#include "gangway/xla/hlo_program.pb.h"

namespace gangway::compiler {

// UNIMPLEMENTED with the number of a field that is unknown, at any depth of the message. For a module, that of its
// computations and their instructions is left to the other two.
absl::Status CheckFields(const xla::hlo::Module& module);
absl::Status CheckFields(const xla::hlo::Computation& computation);
absl::Status CheckFields(const xla::hlo::Instruction& instruction);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_FIELDS_H_
