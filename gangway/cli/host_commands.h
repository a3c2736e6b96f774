// The commands of clusters over hosts: certs, controller, worker, scheduler. Each adds itself to the application, and
// leaves its exit status in `result`.
//
// Threading: called from the main thread, before any other exists; what is given outlives the application. Failure: an
// exit status, with a message on standard error.
#ifndef GANGWAY_CLI_HOST_COMMANDS_H_
#define GANGWAY_CLI_HOST_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "gangway/cli/certs.h"
#include "gangway/cli/hosts.h"
#include "gangway/cli/roles.h"
#include "gangway/cli/up.h"

namespace gangway::cli {

void AddCerts(CLI::App& app, CertsOptions& certs, int& result);
void AddController(CLI::App& app, ControllerOptions& options, WaitLimits& waits, int& result);
void AddWorker(CLI::App& app, HostOptions& hosts, WorkerRoleOptions& worker, int& result);
void AddScheduler(CLI::App& app, HostOptions& hosts, SchedulerRoleOptions& scheduler, int& result);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_HOST_COMMANDS_H_
