// `gangway doctor`: looks at this machine and at the chosen cluster, where one runs, and says of
// each thing that it is well, or what is wrong and what to do. Changes nothing.
#ifndef GANGWAY_CLI_DOCTOR_H_
#define GANGWAY_CLI_DOCTOR_H_

#include <string>

#include "gangway/cli/commands.h"

namespace gangway::cli {

struct DoctorOptions {
  ClusterChoice cluster;
  std::string plugin;  // as FindPlugin takes it
};

// 0: all is well. 1: something is wrong.
int Doctor(const DoctorOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_DOCTOR_H_
