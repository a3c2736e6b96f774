// Shared memory of this process: another process of the host writes a block, which this one reads
// in place, or, where the pool is told so, the other way round. Blocks lie in segments (sealed
// memfds: no file, no name, nothing left when their processes end), which are kept and used again,
// since pages that are used for the first time cost several times what their copy does.
//
// Bounded: all segments together take at most `bytes_max`. A segment without blocks is kept for a
// while, or until its bytes are wanted for another one. The system's pages are taken when a block
// first covers them, so that too little memory is a refusal here, not a signal at a write.
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

#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"

namespace gangway::transport {

class SharedPool;

// A part of a segment, given back when this goes.
class SharedBlock {
 public:
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // page-aligned
  std::byte* writable() const { return writable_; }            // null: not this process's to write
  uint64_t segment() const { return segment_; }
  size_t offset() const { return offset_; }
  size_t segment_bytes() const { return segment_bytes_; }
  int descriptor() const { return descriptor_; }  // of the segment, to be handed to the writer

  // Somebody may still write here, whatever was agreed: nothing of its segment is given out again.
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
  using Clock = std::chrono::steady_clock;

  struct Options {
    size_t bytes_max = 0;  // of all segments; 0: none
    size_t segment_bytes = size_t{64} << 20;
    bool writable = false;  // for this process too
    // There is something for Drop to look at, where there was nothing. Any thread, no lock held.
    std::function<void()> on_idle;
  };
  static std::shared_ptr<SharedPool> Make(Options options);
  ~SharedPool();

  // Null: full, or the system has no memory.
  std::unique_ptr<SharedBlock> Allocate(size_t bytes) GANGWAY_EXCLUDES(mutex_);

  // Lets segments go that hold no block since before `since`.
  struct Dropped {
    std::vector<uint64_t> segments;  // that went since the last call: their writers may unmap them
    bool idle_left = false;          // call again later; on_idle does not
  };
  Dropped Drop(Clock::time_point since) GANGWAY_EXCLUDES(mutex_);

  void Close() GANGWAY_EXCLUDES(mutex_);  // no on_idle from now on

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

    Segment() = default;
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment();
  };
  using Segments = std::map<uint64_t, std::unique_ptr<Segment>>;

  explicit SharedPool(Options options) : options_(std::move(options)) {}

  std::unique_ptr<SharedBlock> AllocateIn(uint64_t id, Segment& segment, size_t size, size_t bytes)
      GANGWAY_REQUIRES(mutex_);
  // Null: full, or the system refuses.
  std::pair<const uint64_t, std::unique_ptr<Segment>>* AddSegment(size_t bytes)
      GANGWAY_REQUIRES(mutex_);
  Segments::iterator Remove(Segments::iterator segment) GANGWAY_REQUIRES(mutex_);
  void Return(const SharedBlock& block) GANGWAY_EXCLUDES(mutex_);

  const Options options_;
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
