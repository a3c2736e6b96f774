// What malloc keeps of this process, and how much it may keep: the memory of CPU devices is malloc's.
//
// The `gangway` command links tcmalloc, which keeps freed blocks, so that a program that runs again touches no fresh
// pages. Kept and live bytes together stay within a limit: before malloc grows past it, it gives kept blocks back to
// the system. Live bytes alone may exceed the limit, because refusing an allocation would end the process: admission
// (GS-2) bounds them. Where tcmalloc is not linked (tests, sanitizers), all of this does nothing and reports zeros.
// Thread-safe.
#ifndef GANGWAY_BASE_HEAP_H_
#define GANGWAY_BASE_HEAP_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace gangway {

struct HeapUse {
  uint64_t live_bytes = 0;  // allocated, small blocks that threads cache included
  uint64_t kept_bytes = 0;  // free, and resident
};

HeapUse GetHeapUse();

// Sets the limit of live and kept bytes; at least 1 MiB. Call it once, early.
void LimitHeap(uint64_t bytes);

// Gives kept blocks back to the system, about `bytes_max` of them. Takes some 0.1 ms per MiB.
void ReleaseHeap(uint64_t bytes_max);

// For a process that holds large blocks for moments only, such as programs with large constants: gives back what was
// kept, and never used, through its last beats. Used by one thread.
class HeapTrimmer {
 public:
  static constexpr size_t kBeats = 20;  // as long as workers are idle before they give back: 10 s

  // Up to `spared_bytes` stay for the next use. About `step_bytes` go back at a beat; a larger block goes back whole.
  HeapTrimmer(uint64_t spared_bytes, uint64_t step_bytes)
      : spared_bytes_(spared_bytes), step_bytes_(step_bytes) {}

  void OnBeat();

 private:
  const uint64_t spared_bytes_;
  const uint64_t step_bytes_;
  std::array<uint64_t, kBeats> kept_bytes_{};  // at the last beats
  size_t beat_ = 0;
};

}  // namespace gangway

#endif  // GANGWAY_BASE_HEAP_H_
