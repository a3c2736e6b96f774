// Shared memory of this process: another process of the host writes a block, which this process
// reads in place; with Options::writable also the other way round. Blocks lie in segments: sealed
// memfds, which have no file and no name and vanish with their processes. Segments are reused,
// because the first use of a page costs several times as much as its copy.
//
// Bounded: all segments together take at most `bytes_max`. A segment without blocks is kept until
// Drop removes it or another segment needs its bytes. The system allocates pages when a block first
// covers them, so that a lack of memory fails Allocate instead of raising a signal at a write.
//
// Threading: every method is for any thread. Blocks keep the pool alive.
#ifndef GANGWAY_TRANSPORT_SHM_SHARED_POOL_H_
#define GANGWAY_TRANSPORT_SHM_SHARED_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/executor.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway::transport {

class SharedPool;

// A part of a segment, returned to the pool by the destructor.
class SharedBlock {
 public:
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // page-aligned
  std::byte* writable() const { return writable_; }            // null: this process must not write
  uint64_t segment() const { return segment_; }
  size_t offset() const { return offset_; }
  size_t segment_bytes() const { return segment_bytes_; }
  int descriptor() const { return descriptor_; }  // of the segment, for the other process

  // The other process may still write this block: no part of its segment is allocated again.
  void Retire() { retired_ = true; }

 private:
  friend class SharedPool;
  SharedBlock() = default;

  std::shared_ptr<SharedPool> pool_;
  uint64_t segment_ = 0;
  size_t offset_ = 0;
  size_t segment_bytes_ = 0;
  int descriptor_ = -1;
  std::span<const std::byte> bytes_;
  std::byte* writable_ = nullptr;
  bool retired_ = false;
};

class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  struct Options {
    size_t bytes_max = 0;  // of all segments; 0: no segments
    size_t segment_bytes = size_t{64} << 20;
    bool writable = false;  // for this process too
    // Called when a segment becomes idle and Drop had none to look at. Any thread, no lock held.
    std::function<void()> on_idle;
    // Called once with a segment that will be used again, on a thread of the pool: when its blocks have first all
    // gone, if they had 1 MiB and more. All its pages exist then. The result goes before the segment's mapping.
    std::function<std::shared_ptr<void>(std::span<std::byte>)> pin;
  };
  static std::shared_ptr<SharedPool> Make(Options options);
  ~SharedPool();

  // Null: the pool is full or the system has no memory.
  std::unique_ptr<SharedBlock> Allocate(size_t bytes) GANGWAY_EXCLUDES(mutex_);

  // Removes the segments that have held no block since before `since`.
  struct Dropped {
    std::vector<uint64_t> segments;  // gone since the last call: other processes may unmap them
    bool idle_left = false;          // call again later; on_idle will not ask
  };
  Dropped Drop(Clock::time_point since) GANGWAY_EXCLUDES(mutex_);

  void Close() GANGWAY_EXCLUDES(mutex_);  // no on_idle and no pin after it

  size_t segment_count() const GANGWAY_EXCLUDES(mutex_);
  size_t bytes() const GANGWAY_EXCLUDES(mutex_);  // of all segments

 private:
  friend class SharedBlock;
  struct Segment {
    FileDescriptor descriptor;
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t backed = 0;              // bytes from the start that have pages
    std::map<size_t, size_t> free;  // offset -> bytes; neighbours are merged
    size_t blocks = 0;
    bool retired = false;
    Clock::time_point idle_since;
    bool pin_asked = false;
    std::shared_ptr<void> pinned;  // set by the pool's thread, which shares the segment until then

    Segment() = default;
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment();
  };
  using Segments = std::map<uint64_t, std::shared_ptr<Segment>>;

  explicit SharedPool(Options options);

  std::unique_ptr<SharedBlock> AllocateIn(uint64_t id, Segment& segment, size_t size, size_t bytes)
      GANGWAY_REQUIRES(mutex_);
  // Null: the pool is full or a system call failed.
  std::pair<const uint64_t, std::shared_ptr<Segment>>* AddSegment(size_t bytes)
      GANGWAY_REQUIRES(mutex_);
  Segments::iterator Remove(Segments::iterator segment) GANGWAY_REQUIRES(mutex_);
  void Return(const SharedBlock& block) GANGWAY_EXCLUDES(mutex_);

  void Pin(std::shared_ptr<Segment> segment);

  const Options options_;
  const std::unique_ptr<EventLoop> pinner_;  // null without Options::pin
  mutable Mutex mutex_;
  Segments segments_ GANGWAY_GUARDED_BY(mutex_);
  size_t bytes_ GANGWAY_GUARDED_BY(mutex_) = 0;
  uint64_t next_segment_ GANGWAY_GUARDED_BY(mutex_) = 1;
  std::vector<uint64_t> dropped_ GANGWAY_GUARDED_BY(mutex_);
  bool told_idle_ GANGWAY_GUARDED_BY(mutex_) = false;
  bool closed_ GANGWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SHM_SHARED_POOL_H_
