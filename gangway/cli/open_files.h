// The limit of open files (RLIMIT_NOFILE), of which each link of a process takes one. Systems keep the soft limit at
// 1,024, for programs that call select(), and allow far more.
//
// Threading: functions without state, for the start of a process. Failure: an error with the numbers.
#ifndef GANGWAY_CLI_OPEN_FILES_H_
#define GANGWAY_CLI_OPEN_FILES_H_

#include <cstdint>

#include "absl/status/status.h"

namespace gangway::cli {

// Raises the limit of this process, and of those that it starts, to what the system allows, at most 2^20; returns it.
uint64_t RaiseOpenFiles();

// What a process needs that has a link to each of the cluster's workers, and serves one session that has, too.
uint64_t OpenFilesFor(uint64_t workers);

// RESOURCE_EXHAUSTED: the process may not open as many files as that; lasting (base/lasting_error.h).
absl::Status CheckOpenFiles(uint64_t workers, uint64_t limit);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_OPEN_FILES_H_
