// `gangway doctor`: checks this machine and, if it runs, the chosen cluster. For each check it
// prints ok, or what is wrong and what to do. Changes nothing.
#ifndef GANGWAY_CLI_DOCTOR_H_
#define GANGWAY_CLI_DOCTOR_H_

#include <string>

#include "gangway/cli/commands.h"

namespace gangway::cli {

struct DoctorOptions {
  ClusterChoice cluster;
  std::string plugin;  // as FindPlugin takes it
};

// 0: no problem found. 1: a check failed.
int Doctor(const DoctorOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_DOCTOR_H_
