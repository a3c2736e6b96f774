// Implementation of written_hlo.h.
#include "gangway/compiler/written_hlo.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/status.h"
#include "gangway/device/pjrt/compile_options_edit.h"

namespace gangway::compiler {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "gangway-partition-";
// Of a folder that another process has just made, and may not have locked yet.
constexpr std::chrono::minutes kNew{1};

fs::path Parent() {
  std::error_code none;
  const fs::path parent = fs::temp_directory_path(none);
  return parent.empty() ? fs::path("/tmp") : parent;
}

// The folder, locked for as long as the descriptor is open. Not valid if another process has locked it.
FileDescriptor Lock(const fs::path& folder) {
  FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.valid() && flock(opened.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return opened;
}

// A new folder that only this user may read, gone with this object.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Make() {
    std::string name = Parent() / absl::StrCat(kFolder, "XXXXXX");
    if (mkdtemp(name.data()) == nullptr)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", name));
    return TemporaryFolder(name);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)), lock_(Lock(path_)) {}
  fs::path path_;
  FileDescriptor lock_;
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

void RemoveLeftHlo() {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(Parent(), ignored)) {
    if (!entry.path().filename().native().starts_with(kFolder)) continue;
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(ignored);
    if (age > kNew && Lock(entry.path()).valid()) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace gangway::compiler
