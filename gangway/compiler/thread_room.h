// Whether this process may start more threads. XLA ends the process when it cannot start one, so a runtime with a
// thread per position asks before it is opened.
#ifndef GANGWAY_COMPILER_THREAD_ROOM_H_
#define GANGWAY_COMPILER_THREAD_ROOM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace gangway::compiler {

// RESOURCE_EXHAUSTED, with the numbers and the file that says so, if `count` more threads exceed the limit of this
// process's cgroup or of one above it (pids.max, versions 1 and 2). OK if there is no limit, or none that can be read.
absl::Status CheckThreadRoom(uint64_t count, const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_THREAD_ROOM_H_
