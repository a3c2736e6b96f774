// Thread: a thread of the operating system or, in a World, one of its fibers; and the id of the process that it
// belongs to.
#ifndef GANGWAY_BASE_THREAD_H_
#define GANGWAY_BASE_THREAD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "gangway/base/world.h"

namespace gangway {

class Thread {
 public:
  Thread() = default;
  // Runs `run` on a new thread. Of `name`, the system keeps 15 characters.
  Thread(const std::string& name, std::function<void()> run);
  Thread(Thread&& other) noexcept { *this = std::move(other); }
  // This thread has been joined, or was never started.
  Thread& operator=(Thread&& other) noexcept {
    thread_ = std::move(other.thread_);
    fiber_ = std::exchange(other.fiber_, 0);
    return *this;
  }
  ~Thread() = default;  // after Join

  bool joinable() const { return thread_.joinable() || fiber_ != 0; }
  void Join();

  // Only without a World.
  std::thread::native_handle_type native_handle() { return thread_.native_handle(); }

  // A word of the calling thread's own, null at first.
  static void*& Local() {
    World* world = World::installed();
    return world == nullptr ? local_ : world->Local();
  }

 private:
  static inline thread_local constinit void* local_ = nullptr;

  std::thread thread_;
  World::ThreadId fiber_ = 0;
};

// Of the calling process.
uint64_t ProcessId();

}  // namespace gangway

#endif  // GANGWAY_BASE_THREAD_H_
