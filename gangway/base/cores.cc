// Implementation of cores.h.
#include "gangway/base/cores.h"

#include <atomic>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

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

std::optional<size_t> CoresOfQuota(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
  uint64_t time = 0, period = 0;
  const bool is_limited = words.size() == 2 && absl::SimpleAtoi(words[0], &time) &&
                          absl::SimpleAtoi(words[1], &period) && period != 0;
  if (!is_limited) return std::nullopt;
  return time / period;
}

std::optional<size_t> CoresOfQuota() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;  // of version 1
    std::ifstream limit("/sys/fs/cgroup" + line.substr(3) + "/cpu.max");
    if (std::string quota; std::getline(limit, quota)) return CoresOfQuota(quota);
  }
  return std::nullopt;
}

}  // namespace gangway
