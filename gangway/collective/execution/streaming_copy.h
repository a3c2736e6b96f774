// A copy whose result does not fit into the processor's caches anyway: it is written past them, so the memory under it
// is not read first, and what others are about to read stays in them.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_
#define GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_

#include <cstddef>

namespace gangway::collective {

// As std::memcpy; on processors without such writes it is one. Other threads that are told of it afterwards see it.
void StreamingCopy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_STREAMING_COPY_H_
