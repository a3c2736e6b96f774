// The text form of programs: any text is a program or an error, and a program that verifies
// survives printing and parsing.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/program/program.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {
      "program step\n"
      "%0: f32[2,3] = argument @0,1\n"
      "%1, %2: s32[]{pinned_host} = call step(donate %0) @0,1 from \"t.py:1\"\n"
      "%3 = transfer %1 @2,3 {pinned_host}\n"
      "%4 = view %1[0], %3[1]\n"
      "%5 = replica of %4 @0\n"
      "call sink(%2, keep %5)\n"
      "free %1, %2\n"
      "result %3\n",
      "# a comment\n\n%0 = argument @0\nresult %0\n"};
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
