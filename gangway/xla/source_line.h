// Where a compiled program comes from in its user's code, as far as the stack frames say that a
// JAX client sends along. Pure; the module may come from anybody.
#ifndef GANGWAY_XLA_SOURCE_LINE_H_
#define GANGWAY_XLA_SOURCE_LINE_H_

#include <string>

#include "gangway/xla/hlo.pb.h"

namespace gangway::xla {

// "FILE:LINE" of the first operation of the jitted function itself, if that is the user's (a frame
// outside of installed packages, of a function that is called as the module is: "jit_step" is
// "step"); else of the user's innermost line that leads to an operation, as for `jnp.add` or an
// optimizer's update. "" where the program has no frames.
std::string SourceLine(const HloModuleProto& module);

}  // namespace gangway::xla

#endif  // GANGWAY_XLA_SOURCE_LINE_H_
