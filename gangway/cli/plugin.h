// Finds the PJRT plugin for a command's `--plugin`: a path, or the name of a plugin on PyPI. Pure
// except for the file system and the environment.
#ifndef GANGWAY_CLI_PLUGIN_H_
#define GANGWAY_CLI_PLUGIN_H_

#include <string>

#include "absl/status/statusor.h"

namespace gangway::cli {

// The path of the plugin's .so. `given` is a path, or
//   ""                        GANGWAY_PLUGIN's value (a path or one of these names), else "cpu"
//   "cpu"                     XLA's CPU plugin of this build
//   "cuda12", "cuda13"        jax-cuda12-pjrt, jax-cuda13-pjrt
//   "cuda"                    the newest installed one of these
// CUDA plugins come from the first Python environment that has one: that of $GANGWAY_PYTHON, which
// runs scripts, and the one that holds this binary; $VIRTUAL_ENV, $CONDA_PREFIX, each python3 on
// PATH, then $PYTHONPATH and the user's own packages.
// NOT_FOUND: names the places searched and what to install. INVALID_ARGUMENT: unknown name.
absl::StatusOr<std::string> FindPlugin(const std::string& given);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_PLUGIN_H_
