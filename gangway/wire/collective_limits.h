// The limits of Gangway's own collectives, which the controller checks and the workers' memory is laid out for.
#ifndef GANGWAY_WIRE_COLLECTIVE_LIMITS_H_
#define GANGWAY_WIRE_COLLECTIVE_LIMITS_H_

#include <cstdint>

namespace gangway::wire {

// Only the first workers of an island take part, and only those with at most this number of devices.
inline constexpr uint32_t kCollectiveWorkersMax = 256;
inline constexpr uint32_t kCollectiveDevicesMax = 64;

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_COLLECTIVE_LIMITS_H_
