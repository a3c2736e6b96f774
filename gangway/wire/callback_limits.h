// The limit of host callbacks that several roles must agree on.
#ifndef GANGWAY_WIRE_CALLBACK_LIMITS_H_
#define GANGWAY_WIRE_CALLBACK_LIMITS_H_

#include <cstdint>

namespace gangway::wire {

// How deep host callbacks may nest: a callback of depth 1 launches a program whose callbacks have depth 2, and so on.
// Each holds a place of its device on the worker (worker_service.cc), so a deeper one would wait for itself.
inline constexpr uint32_t kCallbackDepthMax = 4;

}  // namespace gangway::wire

#endif  // GANGWAY_WIRE_CALLBACK_LIMITS_H_
