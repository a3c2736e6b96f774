// Up to which size the bytes of an array travel with its declaration (Put in values.proto): small enough that the
// message costs the controller about what the declaration alone does, and that bytes delay no other message for long.
// Larger arrays use the workers' data streams.
#ifndef GANGWAY_WIRE_PUT_LIMITS_H_
#define GANGWAY_WIRE_PUT_LIMITS_H_

#include <cstdint>

namespace gangway::wire {

inline constexpr uint64_t kPutArrayBytesMax = uint64_t{16}
                                              << 10;  // of one array, all shards together
// Of one node, and of what a client sends as one operation.
inline constexpr uint64_t kPutBytesMax = uint64_t{256} << 10;
inline constexpr int kPutArraysMax = 256;
// A client sends no bytes with declarations while more of its nodes than this have not ended.
inline constexpr uint64_t kPutPendingMax = 2048;
// The controller refuses a put while a session's puts that have not ended have more bytes than this: they are in the
// memory of the controller's, the scheduler's and the worker's process until then.
inline constexpr uint64_t kPutSessionBytesMax = uint64_t{128} << 20;

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_PUT_LIMITS_H_
