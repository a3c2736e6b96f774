// The text form of programs: any text is a program or an error, and a program that verifies
// survives printing and parsing.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/program/program.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  program::Program program;
  const program::ValueId x = program.AddArgument({0, 1});
  const program::ValueId y = program.AddCall("step", {x}, {0}, 2, {0, 1});
  program.AddResult(program.AddTransfer(y, {2, 3}));
  program.AddCall("sink", {y + 1}, {}, 0, {0, 1});
  return {program::Print(program), "# a comment\n\n%0 = argument @0\nresult %0\n"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace program = gangway::program;
  auto parsed = program::Parse(gangway::fuzz::View(data, size));
  if (!parsed.ok() || !program::Verify(*parsed).ok()) return 0;
  auto again = program::Parse(program::Print(*parsed));
  GANGWAY_CHECK(again.ok() && *again == *parsed, "a program that verifies survives its text form");
  return 0;
}
