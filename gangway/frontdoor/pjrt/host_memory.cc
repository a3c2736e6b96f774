// Implementation of host_memory.h.
#include "gangway/frontdoor/pjrt/host_memory.h"

#include <cstdlib>
#include <iterator>
#include <map>
#include <new>

#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"

namespace gangway::pjrt {
namespace {

constexpr size_t kAlignment = 64;  // of XLA's buffers on CPUs

char* Allocate(size_t size) {
  const size_t rounded = (size + kAlignment) / kAlignment * kAlignment;
  auto* const bytes = static_cast<char*>(std::aligned_alloc(kAlignment, rounded));
  if (bytes == nullptr) throw std::bad_alloc();
  return bytes;
}

// Blocks without a user, by size. Never destroyed: blocks may come back while the process ends.
class Idle {
 public:
  char* Take(size_t size) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto found = blocks_.find(size);
    if (found == blocks_.end()) return nullptr;
    char* const block = found->second;
    blocks_.erase(found);
    bytes_ -= size;
    return block;
  }

  // The largest blocks make room: they are needed least often.
  void Give(char* block, size_t size) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    blocks_.emplace(size, block);
    bytes_ += size;
    while (bytes_ > HostMemory::kIdleMax) {
      auto largest = std::prev(blocks_.end());
      bytes_ -= largest->first;
      std::free(largest->second);
      blocks_.erase(largest);
    }
  }

  size_t bytes() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  mutable Mutex mutex_;
  std::multimap<size_t, char*> blocks_ GANGWAY_GUARDED_BY(mutex_);
  size_t bytes_ GANGWAY_GUARDED_BY(mutex_) = 0;
};

Idle& IdleBlocks() {
  static auto* const idle = new Idle;
  return *idle;
}

}  // namespace

size_t HostMemory::IdleBytes() { return IdleBlocks().bytes(); }

std::shared_ptr<char> HostMemory::Take(size_t size) {
  if (size < kKeptMin) return {Allocate(size), [](char* block) { std::free(block); }};
  char* block = IdleBlocks().Take(size);
  if (block == nullptr) block = Allocate(size);
  return {block, [size, forks = ForkGeneration()](char* done) {
            // In a forked child, the lock may stay locked: its copy of the block ends with it.
            if (ForkGeneration() == forks) IdleBlocks().Give(done, size);
          }};
}

}  // namespace gangway::pjrt
