// Threads that serve: those of event loops and those that lead one, of gRPC's queues, and of what reads unix sockets.
// Code that blocks until a message comes must not run on such a thread, because the message may have to come through
// that thread.
#ifndef GANGWAY_BASE_SERVING_THREAD_H_
#define GANGWAY_BASE_SERVING_THREAD_H_

#include "gangway/base/world.h"

namespace gangway {

namespace internal {
inline thread_local constinit bool serves = false;
}  // namespace internal

// The calling thread serves until it ends. Without effect in a World, whose threads share one of the system's.
inline void BeginServing() { internal::serves = World::installed() == nullptr; }

// The calling thread serves while this exists, as a thread does that waits in EventLoop::Await.
class ServingForNow {
 public:
  ServingForNow() { BeginServing(); }
  ~ServingForNow() { internal::serves = before_; }
  ServingForNow(const ServingForNow&) = delete;
  ServingForNow& operator=(const ServingForNow&) = delete;

 private:
  const bool before_ = internal::serves;
};

// Whether the calling thread serves.
inline bool IsServing() { return internal::serves; }

}  // namespace gangway

#endif  // GANGWAY_BASE_SERVING_THREAD_H_
