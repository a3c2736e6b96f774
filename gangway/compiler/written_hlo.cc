// Implementation of written_hlo.h.
#include "gangway/compiler/written_hlo.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/device/pjrt/compile_options_edit.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

fs::path Parent() {
  std::error_code none;
  const fs::path parent = fs::temp_directory_path(none);
  return parent.empty() ? fs::path("/tmp") : parent;
}

// A new folder that only this user may read, gone with this object.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Make() {
    std::string name = Parent() / "partition-XXXXXX";
    if (mkdtemp(name.data()) == nullptr)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", name));
    return TemporaryFolder(name);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// The contents of the file whose name ends so.
std::optional<std::string> ReadFileLike(const fs::path& folder, std::string_view end) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().native().ends_with(end)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> WrittenHlo(
    const std::string& options, std::string_view passes, std::string_view end,
    absl::FunctionRef<absl::Status(const std::string& options)> compile) {
  const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make();
  if (!folder.ok()) return absl::UnavailableError(folder.status().message());
  std::string writes = device::WithXlaOption(options, "xla_dump_to", folder->path().native());
  writes = device::WithXlaOption(writes, "xla_dump_hlo_as_proto", "True");
  if (!passes.empty()) writes = device::WithXlaOption(writes, "xla_dump_hlo_pass_re", passes);
  const absl::Status compiled = compile(writes);
  std::optional<std::string> hlo = ReadFileLike(folder->path(), std::string(end) + ".hlo.pb");
  if (hlo) return *std::move(hlo);
  GANGWAY_RETURN_IF_ERROR(compiled);
  return absl::UnavailableError(absl::StrCat(
      "the runtime wrote no program ", std::string(end), " to ", folder->path().native(),
      ": is there room, and does the program have such a pass?"));
}

}  // namespace gangway::compiler
