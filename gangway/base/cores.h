// How many threads can run at once. Thread-safe.
#ifndef GANGWAY_BASE_CORES_H_
#define GANGWAY_BASE_CORES_H_

#include <cstddef>

namespace gangway {

// The machine's cores; 0: the system does not say. The first answer stays, because asking the system takes as long as a
// small collective.
size_t Cores();

// What Cores says from now on. For a World (world.h), where it must be the same on every machine. 0: the machine's.
void SetCores(size_t cores);

}  // namespace gangway

#endif  // GANGWAY_BASE_CORES_H_
