// Random programs for tests of properties, drawn with rapidcheck: as a client makes them, with results at their end.
#ifndef GANGWAY_PROGRAM_RANDOM_PROGRAM_TEST_UTIL_H_
#define GANGWAY_PROGRAM_RANDOM_PROGRAM_TEST_UTIL_H_

#include <string>
#include <vector>

#include "gangway/program/passes.h"
#include "gangway/program/program.h"

namespace gangway::program {

struct RandomProgram {
  Program program;  // whose functions are named by their indices in `functions`
  std::vector<ArgumentType> arguments;
  std::vector<FunctionType> functions;

  FunctionTypes Types() const;  // as long as this is there
};

// It can be lowered. Inside of rc::check only.
RandomProgram DrawProgram();

}  // namespace gangway::program

#endif  // GANGWAY_PROGRAM_RANDOM_PROGRAM_TEST_UTIL_H_
