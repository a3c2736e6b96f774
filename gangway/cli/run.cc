// Implementation of run.h.
#include "gangway/cli/run.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/package.h"
#include "gangway/cli/remote_door.h"
#include "gangway/cli/state_dir.h"

namespace gangway::cli {
namespace {

int Fail(const absl::Status& status) {
  fprintf(stderr, "gangway run: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? 2 : 1;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Whether a process listens on `port`. The Python package checks that it is a front door.
bool Listens(int port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

std::string Python() {
  std::string chosen = Environment("GANGWAY_PYTHON");
  if (!chosen.empty()) return chosen;
  if (!PackageFolder().empty()) return "python3";
  const std::string own = SourcePath(".venv/bin/python");
  return access(own.c_str(), X_OK) == 0 ? own : "python3";
}

// The door to a remote cluster, which costs a process if it is not the plugin. The plugin is where
// the Python package looks for it.
std::string RemoteDoor(const std::string& given) {
  if (!given.empty()) return given;
  std::string wanted = Environment("GANGWAY_DOOR");
  if (!wanted.empty()) return wanted;
  const std::string package = PackageFolder();
  std::string library = Environment("GANGWAY_PJRT_PLUGIN");
  if (library.empty()) {
    library = absl::StrCat(package.empty() ? SourcePath("bin") : package, "/libgangway_pjrt.so");
  }
  std::error_code error;
  return std::filesystem::exists(library, error) ? kPjrtDoor : kIfrtDoor;
}

// The flags of gangway.run for a remote cluster.
absl::StatusOr<std::vector<std::string>> RemoteFlags(const RunOptions& options) {
  const std::string address = options.cluster.Address();
  if (options.cluster.tls.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the controller at ", address,
                     " (--connect or GANGWAY_ADDRESS) needs --tls or "
                     "GANGWAY_TLS and the folder that `gangway certs` made for that cluster; a "
                     "cluster on this host is reached by --port"));
  }
  const std::string door = RemoteDoor(options.door);
  if (door != kIfrtDoor)
    return std::vector<std::string>{"--door", door,    "--connect",
                                    address,  "--tls", options.cluster.tls};
  auto port = StartRemoteDoor(address, options.cluster.tls);
  if (!port.ok()) return port.status();
  return std::vector<std::string>{"--door", door, "--port", absl::StrCat(*port)};
}

// The flags of gangway.run for a cluster of this host.
absl::StatusOr<std::vector<std::string>> LocalFlags(const RunOptions& options) {
  auto port = ChoosePort(options.cluster.port);
  if (!port.ok()) return port.status();
  if (!Listens(*port)) {
    return absl::UnavailableError(absl::StrCat(
        "no cluster listens on 127.0.0.1:", *port, ": start one with `gangway up --port ", *port,
        "`, or give the port of a running one (--port or GANGWAY_PORT)"));
  }
  std::vector<std::string> flags = {"--port", absl::StrCat(*port)};
  if (!options.door.empty()) flags.insert(flags.end(), {"--door", options.door});
  return flags;
}

void SetEnvironment(const RunOptions& options) {
  if (PackageFolder().empty()) {  // else the package is installed
    std::string path = SourcePath("python");
    const std::string inherited = Environment("PYTHONPATH");
    if (!inherited.empty()) absl::StrAppend(&path, ":", inherited);
    setenv("PYTHONPATH", path.c_str(), 1);
  }
  if (!options.cluster.state_root.empty())  // Python finds the token there
    setenv("GANGWAY_STATE_DIR", StateRoot(options.cluster.state_root).c_str(), 1);
}

}  // namespace

int RunScript(const RunOptions& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return Fail(
        absl::InvalidArgumentError("no script: gangway run [--port P] script.py [arguments]"));
  }
  auto flags = options.cluster.Address().empty() ? LocalFlags(options) : RemoteFlags(options);
  if (!flags.ok()) return Fail(flags.status());
  SetEnvironment(options);
  const std::string python = Python();
  std::vector<std::string> command = {python, "-m", "gangway.run"};
  command.insert(command.end(), flags->begin(), flags->end());
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return Fail(absl::InternalError(absl::StrCat("cannot run ", python, ": ", std::strerror(errno),
                                               "; set GANGWAY_PYTHON to a Python with JAX")));
}

}  // namespace gangway::cli
