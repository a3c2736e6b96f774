// Whether this process is a forked child. A child inherits memory and descriptors, but no thread, and perhaps locks
// that nothing will release: what belongs to threads of the parent must not be used in it.
#ifndef GANGWAY_BASE_FORK_H_
#define GANGWAY_BASE_FORK_H_

#include <cstdint>

namespace gangway {

// The number of forks between this process and the one that first called this function. Thread-safe; never waits.
uint64_t ForkGeneration();

}  // namespace gangway

#endif  // GANGWAY_BASE_FORK_H_
