// The memory of this host, as far as this process may use it.
#ifndef GANGWAY_BASE_HOST_MEMORY_H_
#define GANGWAY_BASE_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace gangway {

// The machine's memory, or the limit of this process's control group (a container's) where that is lower. Read once.
// 0: unknown.
uint64_t HostMemoryBytes();

// What this process has in the host's memory now, its files included. 0: unknown.
uint64_t ResidentBytes();

// The lowest memory limit of the control group that `proc_cgroup` (the text of /proc/self/cgroup) names, and of those
// above it, in the file system at `root`. UINT64_MAX: none.
uint64_t CgroupMemoryLimit(const std::string& proc_cgroup, const std::string& root);

}  // namespace gangway

#endif  // GANGWAY_BASE_HOST_MEMORY_H_
