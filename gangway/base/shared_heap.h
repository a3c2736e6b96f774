// Malloc's memory as other processes of the host may read it: the buffers of CPU devices are malloc's, and workers read
// each other's buffers where they are (collective/execution). Only for processes that link tcmalloc; it takes fresh
// memory from a file in memory then, and all else is as before (heap.h).
//
// A forked child does not have the heap: its pages are shared, so it would write into this process's. Nor does a core
// dump.
#ifndef GANGWAY_BASE_SHARED_HEAP_H_
#define GANGWAY_BASE_SHARED_HEAP_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace gangway {

struct SharedHeap {
  int descriptor = -1;  // to read it, the process's for good; -1: there is none
  const std::byte* base = nullptr;
  uint64_t bytes = 0;  // of the file: a page takes memory once it is used
};

// From now on malloc takes fresh memory from a file, until that is full. Call it once, before other threads start.
// RESOURCE_EXHAUSTED: the system refuses a file as large, or the process's addresses are limited; malloc goes on as
// before.
absl::StatusOr<SharedHeap> ShareHeap();

}  // namespace gangway

#endif  // GANGWAY_BASE_SHARED_HEAP_H_
