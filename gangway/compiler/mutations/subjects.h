// The programs that gangway_mutated_programs changes: the modules of the check's tests, which XLA's converter made of
// JAX's functions, and the calls that JAX's lowerings make of functions of ours (LAPACK, the host), each as a program.
#ifndef GANGWAY_COMPILER_MUTATIONS_SUBJECTS_H_
#define GANGWAY_COMPILER_MUTATIONS_SUBJECTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace gangway::compiler {

struct Subject {
  std::string module;  // a serialized HloModuleProto, which passes the check
  int64_t replicas = 1;
  int64_t partitions = 1;

  int64_t positions() const { return replicas * partitions; }
};

// By what of ours runs them.
struct Subjects {
  std::vector<Subject> plain;     // nothing of ours: XLA alone
  std::vector<Subject> calling;   // handlers of custom calls
  std::vector<Subject> spanning;  // several positions, whose collectives are Gangway's
};

// Empty lists, if the tests' data is missing.
Subjects ReadSubjects();

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_SUBJECTS_H_
