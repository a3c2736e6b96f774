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

}  // namespace gangway
