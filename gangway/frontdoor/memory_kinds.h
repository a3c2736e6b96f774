// The memory spaces of a device as JAX names them. The cluster calls the default one "".
#ifndef GANGWAY_FRONTDOOR_MEMORY_KINDS_H_
#define GANGWAY_FRONTDOOR_MEMORY_KINDS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gangway {

// Of every device, the default one first. Positions are kind ids.
inline constexpr const char* kMemoryKinds[] = {"device", "pinned_host", "unpinned_host"};
inline constexpr int kMemoryKindCount = 3;

// Unique among the memories of all devices. `kind`: an index of kMemoryKinds.
inline int32_t MemoryId(uint32_t device, int kind) {
  return static_cast<int32_t>(device) * kMemoryKindCount + kind;
}

inline std::string MemoryKindFromClient(std::string_view kind) {
  return kind == kMemoryKinds[0] ? "" : std::string(kind);
}
inline std::string MemoryKindForClient(std::string_view kind) {
  return kind.empty() ? kMemoryKinds[0] : std::string(kind);
}

}  // namespace gangway

#endif  // GANGWAY_FRONTDOOR_MEMORY_KINDS_H_
