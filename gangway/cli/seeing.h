// `gangway trace` and `gangway why`. Each prints its own errors and returns the exit status.
#ifndef GANGWAY_CLI_SEEING_H_
#define GANGWAY_CLI_SEEING_H_

#include <string>
#include <vector>

#include "gangway/cli/commands.h"

namespace gangway::cli {

struct SeeingOptions {
  ClusterChoice cluster;
  std::string out = "gangway-trace.json";  // trace
  std::vector<std::string> scope;          // why: words
  bool json = false;                       // why
};

// Gathers the flight recorders of all processes into one file. Names and omits processes that do
// not answer. Returns 1 if the controller did not answer or the file could not be written.
int WriteTrace(const SeeingOptions& options);

int Why(const SeeingOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_SEEING_H_
