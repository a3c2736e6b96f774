// Memory of the runtime's buffers between pages that may not be touched. Linking this file makes allocations of the
// process that are aligned as XLA CPU's buffers are (posix_memalign, aligned_alloc) end right before such a page, 8,192
// of them at a time, with less than the alignment between; those bytes hold a pattern, which is compared when the block
// is freed. What reads or writes beyond a buffer ends the process, or is found at the free. In a build with
// AddressSanitizer, whose allocator gets all other blocks, instrumented code is stopped at the first byte beyond a
// buffer, too, and so are the functions that the sanitizer intercepts (memcpy). Any thread.
#ifndef GANGWAY_COMPILER_MUTATIONS_GUARDED_MEMORY_H_
#define GANGWAY_COMPILER_MUTATIONS_GUARDED_MEMORY_H_

#include <cstdint>

namespace gangway::compiler {

// Blocks whose pattern was overwritten, so far.
uint64_t OverwrittenBlocks();

// Blocks that were handed out between guard pages, so far.
uint64_t GuardedBlocks();

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_MUTATIONS_GUARDED_MEMORY_H_
