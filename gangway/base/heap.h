// What malloc keeps of this process, and how much it may keep: the memory of CPU devices is malloc's.
//
// The `gangway` command links tcmalloc, which keeps freed blocks, so that a program that runs again touches no fresh
// pages. Kept and live bytes together stay within a limit: before malloc grows past it, it gives kept blocks back to
// the system. Live bytes alone may exceed the limit, because refusing an allocation would end the process: admission
// (GS-2) bounds them. Where tcmalloc is not linked (tests, sanitizers), all of this does nothing and reports zeros.
// Thread-safe.
#ifndef GANGWAY_BASE_HEAP_H_
#define GANGWAY_BASE_HEAP_H_

#include <cstdint>

namespace gangway {

struct HeapUse {
  uint64_t live_bytes = 0;  // allocated, small blocks that threads cache included
  uint64_t kept_bytes = 0;  // free, and resident
};

HeapUse GetHeapUse();

// Sets the limit of live and kept bytes; at least 1 MiB. Call it once, early.
void LimitHeap(uint64_t bytes);

// Gives kept blocks back to the system, about `bytes_max` of them. Takes some 0.1 ms per MiB.
void ReleaseHeap(uint64_t bytes_max);

}  // namespace gangway

#endif  // GANGWAY_BASE_HEAP_H_
