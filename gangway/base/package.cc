// Implementation of package.h.
#include "gangway/base/package.h"

#include <filesystem>
#include <system_error>

namespace gangway {

std::string PackageFolder() {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = own.parent_path().parent_path();
  if (error || own.parent_path().filename() != "_bin") return "";
  return std::filesystem::exists(folder / "__init__.py", error) ? folder.string() : "";
}

std::string SourceFolder() {
  std::error_code error;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  while (!error && !std::filesystem::exists(folder / "pyproject.toml", error)) {
    if (error || folder == folder.parent_path()) return "";
    folder = folder.parent_path();
  }
  return folder.string();
}

std::string SourcePath(std::string_view path) {
  return (std::filesystem::path(SourceFolder()) / path).string();
}

}  // namespace gangway
