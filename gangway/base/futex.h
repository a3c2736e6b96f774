// Waits for a word of memory that processes may share, or threads of a World. Thread-safe.
#ifndef GANGWAY_BASE_FUTEX_H_
#define GANGWAY_BASE_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gangway {

using FutexWord = std::atomic<uint32_t>;
static_assert(sizeof(FutexWord) == sizeof(uint32_t) && FutexWord::is_always_lock_free);

// What a thread waits for at a word is one or more of 32 bits, never none: a wake for others leaves it asleep. In a
// World, every wake wakes all.
using FutexBits = uint32_t;
inline constexpr FutexBits kFutexAny = ~FutexBits{0};

// Returns when the word is not `expected`, at a FutexWake for one of its bits, or after `limit`; perhaps before. The
// memory may be mapped for reading only.
// False: the limit has passed. A World does not say.
bool FutexWait(const FutexWord& word, uint32_t expected, std::chrono::milliseconds limit,
               FutexBits bits = kFutexAny);

// Wakes all threads that wait for the word with one of the bits, also in other processes.
void FutexWake(const FutexWord& word, FutexBits bits = kFutexAny);

// In a loop that looks at memory: a few cycles without, or with, giving the core to another thread.
void PauseCore();
void YieldCore();

}  // namespace gangway

#endif  // GANGWAY_BASE_FUTEX_H_
