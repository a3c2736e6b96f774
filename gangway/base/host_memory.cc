// Implementation of host_memory.h.
#include "gangway/base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace gangway {
namespace {

// "max", which stands for no limit, is not a number.
uint64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  return file >> bytes ? bytes : UINT64_MAX;
}

// Of the group at `path` below `root`, and of all groups above it.
uint64_t LowestLimit(const std::string& root, std::string path, const std::string& file) {
  uint64_t lowest = LimitIn(root + "/" + file);
  while (path.size() > 1) {
    lowest = std::min(lowest, LimitIn(absl::StrCat(root, path, "/", file)));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return lowest;
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

uint64_t CgroupMemoryLimit(const std::string& proc_cgroup, const std::string& root) {
  uint64_t lowest = UINT64_MAX;
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      lowest = std::min(lowest, LowestLimit(root, path, "memory.max"));
    } else if (controllers == "memory") {
      lowest = std::min(lowest, LowestLimit(root + "/memory", path, "memory.limit_in_bytes"));
    }
  }
  return lowest;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");  // in pages: size, resident, ...
  uint64_t size = 0, resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

uint64_t HostMemoryBytes() {
  static const uint64_t bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    if (pages <= 0 || page <= 0) return uint64_t{0};
    return std::min(static_cast<uint64_t>(pages) * static_cast<uint64_t>(page),
                    CgroupMemoryLimit(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup"));
  }();
  return bytes;
}

}  // namespace gangway
