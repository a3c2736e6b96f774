// Implementation of futex.h.
#include "gangway/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

#include "gangway/base/world.h"

namespace gangway {

void FutexWait(const FutexWord& word, uint32_t expected, std::chrono::milliseconds limit) {
  if (World* world = World::installed()) {
    if (word.load() == expected) world->Wait(&word, world->Now() + limit);
    return;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(limit - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void FutexWake(const FutexWord& word) {
  if (World* world = World::installed()) return world->NotifyAll(&word);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void PauseCore() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void YieldCore() {
  if (World* world = World::installed()) return world->Wait(world, world->Now());
  std::this_thread::yield();
}

}  // namespace gangway
