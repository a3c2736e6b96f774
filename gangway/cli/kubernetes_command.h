// The command line of `gangway kubernetes`.
//
// Threading: called from the main thread, before any other exists; what is given outlives the application. Failure: an
// exit status, with a message on standard error.
#ifndef GANGWAY_CLI_KUBERNETES_COMMAND_H_
#define GANGWAY_CLI_KUBERNETES_COMMAND_H_

#include <CLI/CLI.hpp>

#include "gangway/cli/kubernetes.h"

namespace gangway::cli {

void AddKubernetes(CLI::App& app, KubernetesOptions& options, int& result);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_KUBERNETES_COMMAND_H_
