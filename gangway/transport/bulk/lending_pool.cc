// Implementation of lending_pool.h.
#include "gangway/transport/bulk/lending_pool.h"

#include <utility>

namespace gangway::transport {

LendingPool::LendingPool(Options options)
    : options_(std::move(options)),
      pool_(SharedPool::Make({.bytes_max = options_.bytes_max,
                              .writable = options_.writable,
                              .on_idle = options_.drop_later,
                              .pin = options_.pin})) {}

LendingPool::~LendingPool() { pool_->Close(); }

std::unique_ptr<SharedBlock> LendingPool::Allocate(SegmentExchange& with, size_t bytes) {
  if (!with.IsConnected()) return nullptr;
  std::unique_ptr<SharedBlock> block = pool_->Allocate(bytes);
  return block != nullptr && with.HandOver(*block) ? std::move(block) : nullptr;
}

std::vector<uint64_t> LendingPool::DropIdle(Clock::time_point now) {
  SharedPool::Dropped dropped = pool_->Drop(now - options_.idle_max);
  if (dropped.idle_left) options_.drop_later();
  return std::move(dropped.segments);
}

}  // namespace gangway::transport
