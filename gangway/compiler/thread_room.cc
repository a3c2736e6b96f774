// Implementation of thread_room.h.
#include "gangway/compiler/thread_room.h"

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // absent, or "max"
}

absl::Status CheckGroup(const fs::path& group, uint64_t count) {
  const std::optional<uint64_t> limit = ReadNumber(group / "pids.max");
  const std::optional<uint64_t> current = ReadNumber(group / "pids.current");
  if (!limit || !current || *current + count <= *limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "this needs ", count, " more threads, and of the ", *limit, " that ",
      (group / "pids.max").native(), " allows, ", *current,
      " are in use: raise that limit for the compiler's process, or use fewer devices"));
}

}  // namespace

absl::Status CheckThreadRoom(uint64_t count, const std::string& cgroups) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path", or "7:pids:/path" of version 1
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "pids") continue;
    const fs::path root = controllers.empty() ? fs::path(cgroups) : fs::path(cgroups) / "pids";
    // Inside of a container, the path may be one outside: then only the root is there.
    for (fs::path path = line.substr(second + 1);; path = path.parent_path()) {
      GANGWAY_RETURN_IF_ERROR(CheckGroup(root / path.relative_path(), count));
      if (path.relative_path().empty()) break;
    }
  }
  return absl::OkStatus();
}

}  // namespace gangway::compiler
