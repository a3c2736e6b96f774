// Rules of a module's parts that are no computation. Internal to gangway/compiler/check.
#ifndef GANGWAY_COMPILER_CHECK_MODULE_RULES_H_
#define GANGWAY_COMPILER_CHECK_MODULE_RULES_H_

#include "gangway/compiler/check/site.h"

namespace gangway::compiler {

// Before the computations: fields, names, stack frames, devices.
absl::Status CheckModuleHead(const xla::hlo::Module& module);

// After them: signature, aliases, donors, shardings. `entry` is what the module's entry became.
absl::Status CheckModuleInterface(const Program& program, const Callee& entry);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_MODULE_RULES_H_
