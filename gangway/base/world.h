// World: what time, threads, waits and chance are made of. While none is installed, they are the operating system's. A
// simulation installs one of its own, in which threads are fibers of one thread, time is virtual and what runs next
// comes from a seed. clock.h, thread.h, mutex.h, futex.h and random.h ask it; everything else uses those headers, and
// so runs in either unchanged.
//
// Threading: installed and removed while no other thread exists that uses those headers. The functions are called on
// the world's fibers only.
#ifndef GANGWAY_BASE_WORLD_H_
#define GANGWAY_BASE_WORLD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace gangway {

class World {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using ThreadId = uint64_t;  // never 0

  virtual ~World() = default;

  // Null: the operating system's.
  static World* installed() { return installed_; }
  static void Install(World* world) { installed_ = world; }

  virtual Time Now() = 0;
  virtual uint64_t RandomBits() = 0;
  // The id of the process that the calling thread belongs to, as far as its peers can tell.
  virtual uint64_t ProcessId() = 0;

  // The new thread belongs to the caller's process.
  virtual ThreadId Start(const std::string& name, std::function<void()> run) = 0;
  virtual void Join(ThreadId thread) = 0;
  // A word of the calling thread's own, null at first.
  virtual void*& Local() = 0;

  // Returns at a Notify for `address`, or at `deadline`; perhaps before.
  virtual void Wait(const void* address, Time deadline) = 0;
  virtual void NotifyOne(const void* address) = 0;
  virtual void NotifyAll(const void* address) = 0;

 private:
  static inline constinit World* installed_ = nullptr;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_WORLD_H_
