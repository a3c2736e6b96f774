// `gangway run`: becomes Python with a script that uses a cluster.
//
// Threading: called from the main thread, before any other exists. Failure: printed; the result is the exit status.
#ifndef GANGWAY_CLI_RUN_H_
#define GANGWAY_CLI_RUN_H_

#include <string>
#include <vector>

#include "gangway/cli/commands.h"

namespace gangway::cli {

inline constexpr char kPjrtDoor[] = "pjrt";  // the plugin in the script's process
inline constexpr char kIfrtDoor[] = "ifrt";  // the front door, by the proxy client in jaxlib

struct RunOptions {
  ClusterChoice cluster;
  std::string door;  // empty: GANGWAY_DOOR, or else the Python package chooses
};

// Replaces this process by Python with the script; returns only on an error. `arguments`: the
// script and its arguments, as given.
int RunScript(const RunOptions& options, const std::vector<std::string>& arguments);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_RUN_H_
