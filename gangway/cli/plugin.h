// Which PJRT plugin a command means: a path, or the name of one as it is packaged on PyPI. Pure but
// for the file system and the environment.
#ifndef GANGWAY_CLI_PLUGIN_H_
#define GANGWAY_CLI_PLUGIN_H_

#include <string>

#include "absl/status/statusor.h"

namespace gangway::cli {

// The path of the plugin's .so. `given` is a path, or
//   ""                        what GANGWAY_PLUGIN says (a path or one of these names), else "cpu"
//   "cpu"                     XLA's CPU plugin, which this build was made with
//   "cuda12", "cuda13"        jax-cuda12-pjrt, jax-cuda13-pjrt
//   "cuda"                    the newer one of these that is there
// in the first Python environment that has it: $VIRTUAL_ENV, $CONDA_PREFIX, each python3 on PATH,
// then $PYTHONPATH and the user's own packages.
// NOT_FOUND: says where it was looked for and what to install. INVALID_ARGUMENT: no such name.
absl::StatusOr<std::string> FindPlugin(const std::string& given);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_PLUGIN_H_
