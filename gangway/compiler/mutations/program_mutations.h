// Changes of programs. A change of one field is refused by the check more often than not, because shapes no longer fit;
// a change of a size or an element type wherever it occurs makes a program that may fit and that nobody has written.
#ifndef GANGWAY_COMPILER_MUTATIONS_PROGRAM_MUTATIONS_H_
#define GANGWAY_COMPILER_MUTATIONS_PROGRAM_MUTATIONS_H_

#include <random>
#include <string>

namespace gangway::compiler {

// `module`, a serialized HloModuleProto, with one to four changes, which `random` decides. What does not parse becomes
// an empty module.
std::string MutatedProgram(const std::string& module, std::mt19937& random);

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_PROGRAM_MUTATIONS_H_
