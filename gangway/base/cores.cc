// Implementation of cores.h.
#include "gangway/base/cores.h"

#include <atomic>
#include <thread>

namespace gangway {
namespace {

std::atomic<size_t> set_cores = 0;  // 0: the machine's

}  // namespace

size_t Cores() {
  static const size_t cores = std::thread::hardware_concurrency();
  const size_t set = set_cores.load(std::memory_order_relaxed);
  return set == 0 ? cores : set;
}

void SetCores(size_t cores) { set_cores.store(cores, std::memory_order_relaxed); }

}  // namespace gangway
