// Implementation of futex.h.
#include "gangway/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <thread>

#include "gangway/base/clock.h"
#include "gangway/base/world.h"

namespace gangway {

bool FutexWait(const FutexWord& word, uint32_t expected, std::chrono::milliseconds limit,
               FutexBits bits) {
  if (World* world = World::installed()) {
    if (word.load() == expected) world->Wait(&word, world->Now() + limit);
    return true;
  }
  const std::chrono::nanoseconds until = (Clock::now() + limit).time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(until);
  const timespec deadline{.tv_sec = seconds.count(), .tv_nsec = (until - seconds).count()};
  return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &deadline, nullptr, bits) == 0 ||
         errno != ETIMEDOUT;
}

void FutexWake(const FutexWord& word, FutexBits bits) {
  if (World* world = World::installed()) return world->NotifyAll(&word);
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
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
