// Fuzzes the lines that the head writes for its supervisor: any line parses or is rejected, and what
// is written for a parsed announcement survives another round trip.
#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/cli/announcement.h"

namespace gangway::fuzz {

std::vector<std::string> Seeds() {
  return {"listening 127.0.0.1:1234", "event worker island0/worker1 is up", "waiting a, b", "ready",
          "silent 4711"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace cli = gangway::cli;
  const std::string line(gangway::fuzz::View(data, size));
  if (line.find('\n') != std::string::npos) return 0;  // the reader splits lines
  auto read = cli::FromLine(line);
  if (!read.has_value()) return 0;
  const std::string written = cli::ToLine(*read);
  auto again = cli::FromLine(written);
  GANGWAY_CHECK(again.has_value() && again->kind == read->kind && cli::ToLine(*again) == written,
                "an announcement survives its line");
  return 0;
}
