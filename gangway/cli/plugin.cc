// Implementation of plugin.h.
#include "gangway/cli/plugin.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "gangway/base/package.h"

namespace gangway::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaNames[] = {"cuda13", "cuda12"};  // the newer one first

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void AddUnique(std::vector<std::string>& list, const fs::path& path) {
  const std::string text = path.lexically_normal().string();
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// The folders of installed packages below `prefix`: /usr, a virtual environment or ~/.local.
void AddPackages(const fs::path& prefix, std::vector<std::string>& folders) {
  std::error_code error;
  for (fs::directory_iterator it(prefix / "lib", error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      std::error_code gone;
      if (fs::is_directory(it->path() / packages, gone)) AddUnique(folders, it->path() / packages);
    }
  }
}

std::vector<std::string> Listed(const char* name) {
  return absl::StrSplit(Environment(name), ':', absl::SkipEmpty());
}

std::vector<std::string> PythonFolders() {
  std::vector<std::string> folders;
  // A name without a folder is looked up on PATH, as below.
  if (const fs::path python = Environment("GANGWAY_PYTHON"); python.has_parent_path())
    AddPackages(python.parent_path().parent_path(), folders);
  if (const std::string package = PackageFolder(); !package.empty())
    AddUnique(folders, fs::path(package).parent_path());
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = Environment(name); !prefix.empty()) AddPackages(prefix, folders);
  }
  for (const std::string& folder : Listed("PATH")) {
    if (access((fs::path(folder) / "python3").c_str(), X_OK) == 0)
      AddPackages(fs::path(folder).parent_path(), folders);
  }
  for (const std::string& folder : Listed("PYTHONPATH")) AddUnique(folders, folder);
  if (const std::string home = Environment("HOME"); !home.empty())
    AddPackages(fs::path(home) / ".local", folders);
  return folders;
}

absl::StatusOr<std::string> FindCuda(const std::vector<std::string>& names) {
  const std::vector<std::string> folders = PythonFolders();
  for (const std::string& folder : folders) {
    for (const std::string& name : names) {
      const fs::path path =
          fs::path(folder) / "jax_plugins" / absl::StrCat("xla_", name) / "xla_cuda_plugin.so";
      if (access(path.c_str(), R_OK) == 0) return path.string();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no CUDA plugin (jax_plugins/xla_",
      absl::StrJoin(names, "/xla_cuda_plugin.so, jax_plugins/xla_"),
      "/xla_cuda_plugin.so) is installed in ",
      folders.empty() ? "any Python environment: none was found by GANGWAY_PYTHON, "
                        "VIRTUAL_ENV or PATH"
                      : absl::StrJoin(folders, ", "),
      ". Install it where your scripts run: pip install 'jax[", names.front(), "]' (or jax-",
      names.front(),
      "-pjrt alone), and activate that environment; or give the path of the .so with --plugin or "
      "GANGWAY_PLUGIN"));
}

absl::StatusOr<std::string> CheckPath(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (folder || access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("no PJRT plugin can be read at \"", path, "\" (",
                     folder ? "a folder" : std::strerror(errno),
                     "): give the path of one, or cpu or cuda, with --plugin or GANGWAY_PLUGIN, or "
                     "run tools/setup.sh for the CPU one"));
  }
  return path;
}

// "/opt/plugin.so" and "plugin.so" are paths, "cuda" is a name.
bool IsPath(const std::string& text) { return text.find_first_of("/.") != std::string::npos; }

// Of the build, or of the wheel's package.
std::string CpuPlugin() {
  const std::string package = PackageFolder();
  if (package.empty()) return SourcePath(GANGWAY_DEFAULT_PLUGIN);
  return absl::StrCat(package, "/_plugins/pjrt_c_api_cpu_plugin.so");
}

}  // namespace

absl::StatusOr<std::string> FindPlugin(const std::string& given) {
  std::string wanted = given.empty() ? Environment("GANGWAY_PLUGIN") : given;
  if (wanted.empty()) wanted = "cpu";
  if (IsPath(wanted)) return CheckPath(wanted);
  if (wanted == "cpu") return CheckPath(CpuPlugin());
  const std::vector<std::string> names(std::begin(kCudaNames), std::end(kCudaNames));
  if (wanted == "cuda") return FindCuda(names);
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return FindCuda({wanted});
  return absl::InvalidArgumentError(absl::StrCat("no PJRT plugin is called \"", wanted,
                                                 "\": give cpu, cuda, ", absl::StrJoin(names, ", "),
                                                 " or the path of a plugin's .so"));
}

}  // namespace gangway::cli
