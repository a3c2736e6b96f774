// Implementation of cache_key.h.
#include "gangway/compiler/cache_key.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "gangway/base/sha256.h"
#include "gangway/base/status.h"
#include "gangway/xla/compile_options.h"

namespace gangway::compiler {
namespace {

constexpr char kFormat[] = "gangway executable 11";  // raised when CompileResult's meaning changes

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first processor's line of features: "flags" on x86, "Features" on Arm.
std::string CpuFeatures() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features"))
      return line.substr(line.find(':') + 1);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> CompilerIdentity(const device::Capabilities& capabilities,
                                             const std::string& plugin_path) {
  std::string file;
  if (!plugin_path.empty()) {
    struct stat stat;
    if (::stat(plugin_path.c_str(), &stat) != 0) {
      return absl::NotFoundError(
          absl::StrCat("cannot read the plugin ", plugin_path, ": ", std::strerror(errno)));
    }
    file = absl::StrCat(stat.st_size, " ", stat.st_mtim.tv_sec, ".", stat.st_mtim.tv_nsec);
  }
  return JoinForHash({kFormat, capabilities.platform, capabilities.platform_version,
                      capabilities.api_version, file, Environment("NPROC"),
                      Environment("XLA_FLAGS"), CpuFeatures()});
}

absl::StatusOr<std::string> CacheKey(const std::string& compiler_identity,
                                     const wire::CompileRequest& request,
                                     uint32_t lowering_version) {
  GANGWAY_ASSIGN_OR_RETURN(auto options, xla::CanonicalOptions(request.options()));
  const bool lowers = request.spans_workers() || request.own_collectives();
  // The program, which may be large, is hashed in place.
  return Sha256Hex(JoinForHash({compiler_identity, request.format(), Sha256Hex(request.program()),
                                options, std::to_string(request.device_count()),
                                request.spans_workers() ? "lowered for one position" : "",
                                request.own_collectives() ? "own collectives" : "",
                                lowers ? absl::StrCat("lowering ", lowering_version) : ""}));
}

}  // namespace gangway::compiler
