// Fuzzes the parser of serialized executables: what it accepts is what Store writes, byte by byte.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/base/sha256.h"
#include "gangway/frontdoor/pjrt/stored_program.h"

namespace gangway::fuzz {
namespace {

// With the checksum of the rest, which random bytes never have.
std::string Signed(std::string_view rest) {
  return "GANGWAYP3" + Sha256Hex(rest) + std::string(rest);
}

}  // namespace

// The first byte says whether the rest is a whole file, or what follows its checksum.
std::vector<std::string> Seeds() {
  const std::string whole =
      pjrt::Store({.program = "module {}", .format = "mlir", .options = "abc", .layouts = "0,1|"});
  return {"w" + whole, "r" + whole.substr(73), "r"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = gangway::fuzz;
  const std::string_view rest = fuzz::View(data, size).substr(size == 0 ? 0 : 1);
  const bool whole = size > 0 && data[0] % 2 == 1;
  const std::string bytes = whole ? std::string(rest) : fuzz::Signed(rest);
  auto read = gangway::pjrt::ReadStored(bytes);
  if (read.ok())
    GANGWAY_CHECK(gangway::pjrt::Store(*read) == bytes, "accepted bytes are those of Store");
  return 0;
}
