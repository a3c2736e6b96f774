// The text of simulated programs, which clients send: it parses or is rejected, and a parsed
// program survives printing.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/device/sim/sim_program.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {
      "sim 1\nname step\npartitions 4\ncollective\ncost_us 330\ntemp_bytes 4096\n"
      "input 11 128 4\noutput 11 128 4\noutput 11 128 4 donates 0\n",
      "sim 1\npartitions 4\nall_reduce 0\npermute 0 3\nrounds 2\nslow 1 9\nfails 3 1\ninput 8 "
      "4\noutput 8 4\n",
      "sim 1 # nothing\n\nname x\n"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto program = gangway::device::ParseSimProgram(gangway::fuzz::View(data, size));
  if (!program.ok()) return 0;
  const std::string text = gangway::device::FormatSimProgram(*program);
  auto again = gangway::device::ParseSimProgram(text);
  GANGWAY_CHECK(again.ok() && gangway::device::FormatSimProgram(*again) == text,
                "a parsed program survives its text form");
  return 0;
}
