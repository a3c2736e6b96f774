// The versions that the two ends of a link compare in their Hello.
#ifndef GANGWAY_WIRE_VERSION_H_
#define GANGWAY_WIRE_VERSION_H_

#include <cstdint>

namespace gangway::wire {

inline constexpr uint32_t kProtocolVersion = 20;
inline constexpr char kBuildVersion[] = "0.1.0";

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_VERSION_H_
