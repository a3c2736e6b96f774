// What all roles begin and end with: signals, the log, the exit status.
//
// Threading: as each function says. Failure: an exit status.
#ifndef GANGWAY_CLI_ROLE_PROCESS_H_
#define GANGWAY_CLI_ROLE_PROCESS_H_

#include "absl/status/status.h"

namespace gangway::cli {

// Sent by a process to its own thread that waits for signals, to end that wait.
int EndWatchSignal();

// Blocks the signals that end a role, logs to standard error under `name`, and raises the limit of open files, since
// workers and sessions have links to most roles. To be called before any other thread starts: all threads inherit the
// mask, so that only WaitForStop receives the signals.
void BeginRole(const char* name);

// Returns SIGTERM or SIGINT, whichever comes first.
int WaitForStop();

// Logs the error; returns the exit status for it.
int FailRole(const absl::Status& status);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ROLE_PROCESS_H_
