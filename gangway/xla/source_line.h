// Finds the line of the user's code that a compiled program comes from, by the stack frames that a
// JAX client sends with it. Pure; the module is not trusted.
#ifndef GANGWAY_XLA_SOURCE_LINE_H_
#define GANGWAY_XLA_SOURCE_LINE_H_

#include <string>
#include <vector>

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {

// "FILE:LINE" of the first operation of the jitted function, if that function is the user's: its
// frame is outside installed packages, and its name is the module's ("step" for "jit_step"). Else
// of the innermost user line that leads to an operation, as for `jnp.add` or an optimizer's update.
// "" if the program has no such frame.
std::string SourceLine(const HloModuleProto& module);

// For each stack frame, "FILE:LINE" of the innermost user line that leads to its operation; "" if none does.
std::vector<std::string> SourceLines(const StackFrameIndexProto& frames);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_SOURCE_LINE_H_
