// Implementation of options.h.
#include "gangway/frontdoor/pjrt/options.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/private_file.h"
#include "gangway/base/status.h"
#include "gangway/base/thread.h"
#include "gangway/frontdoor/pjrt/error.h"

namespace gangway::pjrt {
namespace {

constexpr const char* kNames[] = {"address", "port", "session_name", "state_dir", "tls", "token"};
// What JAX adds in a process that has called jax.distributed.initialize.
constexpr const char* kDistributed[] = {"node_id", "num_nodes", "partition_index"};
constexpr char kDefaultPort[] = "38600";

absl::StatusOr<std::string> TextOf(const PJRT_NamedValue& value) {
  if (value.type == PJRT_NamedValue_kString) {
    if (value.value_size > 0) GANGWAY_RETURN_IF_ERROR(Need(value.string_value, "the value"));
    return std::string(value.string_value, value.value_size);
  }
  if (value.type == PJRT_NamedValue_kInt64) return absl::StrCat(value.int64_value);
  return absl::InvalidArgumentError("the value is neither a string nor an integer");
}

absl::StatusOr<std::map<std::string, std::string>> Texts(std::span<const PJRT_NamedValue> options) {
  std::map<std::string, std::string> texts;
  for (const PJRT_NamedValue& option : options) {
    if (option.name_size > 0) GANGWAY_RETURN_IF_ERROR(Need(option.name, "an option's name"));
    const std::string name(option.name, option.name_size);
    if (std::ranges::find(kNames, name) == std::end(kNames) &&
        std::ranges::find(kDistributed, name) == std::end(kDistributed)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the option '", name, "' is unknown; there are: ", absl::StrJoin(kNames, ", ")));
    }
    GANGWAY_ASSIGN_OR_RETURN(texts[name], TextOf(option), "option '", name, "'");
  }
  return texts;
}

// The first that is not empty.
std::string Choose(const std::string& given, const char* variable, const std::string& otherwise) {
  if (!given.empty()) return given;
  const char* set = variable == nullptr ? nullptr : std::getenv(variable);
  return set != nullptr && *set != '\0' ? set : otherwise;
}

// A cluster is one process to each of its clients.
absl::Status CheckAlone(std::map<std::string, std::string>& texts) {
  const std::string count = Choose(texts["num_nodes"], nullptr, "1");
  if (count == "1") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this process is number ", Choose(texts["node_id"], nullptr, "?"), " of ", count,
                   " of jax.distributed, but one script sees the devices of all hosts of a "
                   "cluster: run it once, without "
                   "jax.distributed.initialize or with num_processes=1"));
}

// Without a TLS folder a missing file is an empty token: the cluster says that it is wrong.
absl::StatusOr<std::string> TokenIn(const std::string& folder, bool required) {
  const std::string path = absl::StrCat(folder, "/token");
  auto text = ReadPrivateFile(path);
  if (!required && absl::IsNotFound(text.status())) return "";
  if (!text.ok()) return AddContext(text.status(), "the token of the cluster");
  std::string token(absl::StripAsciiWhitespace(*text));
  if (!token.empty()) return token;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is empty: copy the file from the cluster's host"));
}

std::string FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ProgramName() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return absl::StrCat(name, " (pid ", ProcessId(), ")");
}

}  // namespace

absl::StatusOr<ClusterOptions> ReadOptions(std::span<const PJRT_NamedValue> options) {
  GANGWAY_ASSIGN_OR_RETURN(auto texts, Texts(options));
  GANGWAY_RETURN_IF_ERROR(CheckAlone(texts));
  const std::string home = absl::StrCat(Choose("", "HOME", ""), "/.gangway");
  const std::string folder = absl::StrCat(Choose(texts["state_dir"], "GANGWAY_STATE_DIR", home),
                                          "/", Choose(texts["port"], "GANGWAY_PORT", kDefaultPort));
  ClusterOptions found;
  found.reports_ends = true;
  found.address = Choose(texts["address"], "GANGWAY_ADDRESS", "");
  found.tls = Choose(texts["tls"], "GANGWAY_TLS", "");
  const std::string token_folder = found.tls.empty() ? folder : found.tls;
  if (found.address.empty()) {  // a cluster of this host
    found.address = FirstLineOf(absl::StrCat(folder, "/control"));
    if (found.tls.empty()) found.tls = FirstLineOf(absl::StrCat(folder, "/tls"));
  }
  if (found.address.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no Gangway cluster has left its address in ", folder,
        ": start one with `gangway up`, or name a running one's port (GANGWAY_PORT) or address "
        "(GANGWAY_ADDRESS)"));
  }
  found.token = Choose(texts["token"], "GANGWAY_TOKEN", "");
  if (found.token.empty()) {
    GANGWAY_ASSIGN_OR_RETURN(found.token,
                             TokenIn(token_folder, /*required=*/token_folder != folder));
  }
  found.name = Choose(texts["session_name"], "GANGWAY_SESSION", ProgramName());
  return found;
}

}  // namespace gangway::pjrt
