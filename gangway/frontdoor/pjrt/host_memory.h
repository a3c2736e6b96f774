// Memory of this process for bytes that come from the cluster. Large blocks are used again, because the first use of a
// page costs several times as much as its copy: up to kIdleMax bytes are kept without a user.
//
// Threading: any thread.
#ifndef GANGWAY_FRONTDOOR_PJRT_HOST_MEMORY_H_
#define GANGWAY_FRONTDOOR_PJRT_HOST_MEMORY_H_

#include <cstddef>
#include <memory>

namespace gangway::pjrt {

class HostMemory {
 public:
  static constexpr size_t kKeptMin = size_t{1} << 20;  // smaller blocks are the allocator's
  static constexpr size_t kIdleMax = size_t{256} << 20;

  // At least one byte, aligned as XLA aligns its buffers on CPUs. std::bad_alloc: none is left.
  static std::shared_ptr<char> Take(size_t size);
  static size_t IdleBytes();
};

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_HOST_MEMORY_H_
