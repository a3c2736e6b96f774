// How many threads can run at once. Thread-safe. Source: cgroup-v2.rst of the Linux kernel (cpu.max).
#ifndef GANGWAY_BASE_CORES_H_
#define GANGWAY_BASE_CORES_H_

#include <cstddef>
#include <optional>
#include <string>

namespace gangway {

// The machine's cores; 0: the system does not say. The first answer stays, because asking the system takes as long as a
// small collective.
size_t Cores();

// What Cores says from now on. For a World (world.h), where it must be the same on every machine. 0: the machine's.
void SetCores(size_t cores);

// The whole cores' time that the process's control group may take, by the line of its `cpu.max` ("150000 100000": 1);
// absent: as much as there is, or the line is none.
std::optional<size_t> CoresOfQuota(const std::string& line);
// This process's; absent also if the system does not say. Limits of groups above its own are not seen.
std::optional<size_t> CoresOfQuota();

}  // namespace gangway

#endif  // GANGWAY_BASE_CORES_H_
