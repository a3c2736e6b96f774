// A copy whose result does not fit into the processor's caches anyway: it is written past them, so the memory under it
// is not read first, and what others are about to read stays in them.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_
#define GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_

#include <cstddef>

namespace gangway::collective {

// What the members of a host copy in one collective, from which on it does not stay in the caches. Measured where the
// last one has 32 MiB, which the operands fill as well.
inline constexpr size_t kBeyondCaches = size_t{16} << 20;

// As std::memcpy, and without SSE2 it is that. A thread or process that is notified after the return sees the bytes.
void StreamingCopy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_
