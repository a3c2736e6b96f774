// The limits of Gangway's own collectives, which the controller checks and the workers' memory is laid out for.
#ifndef GANGWAY_WIRE_COLLECTIVE_LIMITS_H_
#define GANGWAY_WIRE_COLLECTIVE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace gangway::wire {

// Each device says in its memory how far it has read the messages of each other device of the island: one word for each
// of them. Both limits follow from the bytes of these words; pages are used for the workers that an island has.
inline constexpr size_t kCollectiveReadsBytes = size_t{512} << 10;
// Only the first workers of an island take part, and only those with at most this number of devices.
inline constexpr uint32_t kCollectiveDevicesMax = 64;
inline constexpr uint32_t kCollectiveWorkersMax =
    kCollectiveReadsBytes / sizeof(uint64_t) / kCollectiveDevicesMax;
static_assert(kCollectiveWorkersMax == 1024);

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_COLLECTIVE_LIMITS_H_
