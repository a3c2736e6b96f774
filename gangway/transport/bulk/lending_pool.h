// LendingPool: this process's shared memory for shards that another process of the host writes or reads in place. Its
// blocks go to one link each, over the link's SegmentExchange; from when the other process is told of a block, a
// LentBlock keeps it. Segments that stay idle return to the system, and the links are told that they are gone.
//
// Bounded (TM-2): `bytes_max` of all segments. It has no loop and no clock: `drop_later` has the owner call DropIdle.
// Threading: one thread at a time; blocks end on any thread.
#ifndef GANGWAY_TRANSPORT_BULK_LENDING_POOL_H_
#define GANGWAY_TRANSPORT_BULK_LENDING_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/shm/shared_pool.h"

namespace gangway::transport {

class LendingPool {
 public:
  struct Options {
    size_t bytes_max = 0;   // 0: no shared memory
    bool writable = false;  // for this process too
    std::chrono::milliseconds idle_max{10'000};
    // Call DropIdle after idle_max. Any thread, no lock held.
    std::function<void()> drop_later;
    std::function<std::shared_ptr<void>(std::span<std::byte>)> pin;  // as in SharedPool::Options
  };
  explicit LendingPool(Options options);
  ~LendingPool();  // no drop_later after it; blocks may outlive it
  LendingPool(const LendingPool&) = delete;
  LendingPool& operator=(const LendingPool&) = delete;

  // A block in a segment that the other end can map. Null: the other end is not on this host, the pool is full or the
  // system has no memory; then the bytes come on the link.
  std::unique_ptr<SharedBlock> Allocate(SegmentExchange& with, size_t bytes);

  // Drops the segments that have been idle since `now - idle_max`, and returns all that are gone since the last call:
  // for TakeGone of each exchange.
  std::vector<uint64_t> DropIdle(Clock::time_point now);

  const std::shared_ptr<SharedPool>& shared() const { return pool_; }

 private:
  const Options options_;
  const std::shared_ptr<SharedPool> pool_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_BULK_LENDING_POOL_H_
