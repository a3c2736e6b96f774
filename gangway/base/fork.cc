// Implementation of fork.h.
#include "gangway/base/fork.h"

#include <pthread.h>

#include <atomic>

namespace gangway {
namespace {

std::atomic<uint64_t> generation{0};

}  // namespace

uint64_t ForkGeneration() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

}  // namespace gangway
