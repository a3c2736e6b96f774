// Implementation of commands.h.
#include "gangway/cli/commands.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/status.h"
#include "gangway/cli/access.h"
#include "gangway/cli/remote_door.h"
#include "gangway/cli/state_dir.h"
#include "gangway/cli/status_text.h"
#include "gangway/cli/tool_link.h"

namespace gangway::cli {
namespace {

constexpr int kDownLimitMs = 20000;  // more than the sum of the supervisor's own limits
constexpr std::chrono::seconds kStatusLimit{5};

int Fail(const char* command, const absl::Status& status) {
  fprintf(stderr, "gangway %s: %s\n", command, std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<wire::StatusReply> Ask(const ClusterChoice& cluster) {
  GANGWAY_ASSIGN_OR_RETURN(auto door, OpenControl(cluster));
  return AskStatus(*door.transport, door.address, door.token, kStatusLimit);
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
  const char* chosen = std::getenv("GANGWAY_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const std::string own = GANGWAY_SOURCE_DIR "/.venv/bin/python";
  return access(own.c_str(), X_OK) == 0 ? own : "python3";
}

}  // namespace

absl::StatusOr<ControlDoor> OpenControl(const ClusterChoice& cluster) {
  GANGWAY_ASSIGN_OR_RETURN(auto port, ChoosePort(cluster.port));
  StateDir dir(StateRoot(cluster.state_root), port);
  GANGWAY_RETURN_IF_ERROR(dir.Supervisor());
  auto control = dir.Read(kControlAddress);
  if (!control.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the cluster on port ", port, " is still starting: retry soon"));
  }
  GANGWAY_ASSIGN_OR_RETURN(auto access,
                           ReadAccess({.tls = dir.Read(kTlsFolder).value_or(""),
                                       .token_file = dir.File(TokenFile(wire::ROLE_TOOL))}));
  GANGWAY_ASSIGN_OR_RETURN(auto transport, OpenTransport(access.tls));
  return ControlDoor{std::move(transport), *std::move(control), std::move(access.token)};
}

int Down(const ClusterChoice& cluster) {
  auto port = ChoosePort(cluster.port);
  if (!port.ok()) return Fail("down", port.status());
  StateDir dir(StateRoot(cluster.state_root), *port);
  auto pid = dir.Supervisor();
  if (!pid.ok()) return Fail("down", pid.status());
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, *pid, 0)));
  if (process.get() < 0 || kill(*pid, SIGTERM) != 0) {
    return Fail("down", absl::UnavailableError(absl::StrCat("cannot end the supervisor (pid ", *pid,
                                                            "): ", std::strerror(errno))));
  }
  kill(*pid, SIGCONT);  // a stopped supervisor would not see the first signal
  pollfd ended = {.fd = process.get(), .events = POLLIN};
  if (poll(&ended, 1, kDownLimitMs) != 1) {
    return Fail("down",
                absl::DeadlineExceededError(absl::StrCat(
                    "the supervisor (pid ", *pid, ") has not ended after ", kDownLimitMs / 1000,
                    " s: end it with kill -9 ", *pid, "; its processes end with it")));
  }
  printf("the cluster on port %d has ended\n", *port);
  return 0;
}

int Status(const ClusterChoice& cluster, StatusForm form) {
  auto status = Ask(cluster);
  if (!status.ok()) return Fail("status", status.status());
  const std::string text = form == StatusForm::kJson ? ToJson(*status) + "\n" : ToTable(*status);
  fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

int RunScript(const ClusterChoice& cluster, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return Fail("run", absl::InvalidArgumentError(
                           "no script: gangway run [--port P] script.py [arguments]"));
  }
  if (!cluster.connect.empty() && cluster.tls.empty()) {
    return Fail("run", absl::InvalidArgumentError(
                           "--connect needs --tls and the folder that `gangway certs` made for "
                           "that cluster; a cluster on this host is reached by --port"));
  }
  auto port = cluster.connect.empty() ? ChoosePort(cluster.port)
                                      : StartRemoteDoor(cluster.connect, cluster.tls);
  if (!port.ok()) {
    Fail("run", port.status());
    return absl::IsUnavailable(port.status()) ? 2 : 1;
  }
  if (cluster.connect.empty() && !Listens(*port)) {
    fprintf(stderr,
            "gangway run: no cluster listens on 127.0.0.1:%d: start one with `gangway up --port "
            "%d`, or give "
            "the port of a running one (--port or GANGWAY_PORT)\n",
            *port, *port);
    return 2;
  }
  std::string path = GANGWAY_SOURCE_DIR "/python";
  const char* inherited = std::getenv("PYTHONPATH");
  if (inherited != nullptr && *inherited != '\0') absl::StrAppend(&path, ":", inherited);
  setenv("PYTHONPATH", path.c_str(), 1);
  setenv("GANGWAY_PORT", absl::StrCat(*port).c_str(), 1);
  if (!cluster.state_root.empty())  // Python finds the token there
    setenv("GANGWAY_STATE_DIR", StateRoot(cluster.state_root).c_str(), 1);
  const std::string python = Python();
  std::vector<std::string> command = {python, "-m", "gangway.run"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return Fail("run",
              absl::InternalError(absl::StrCat("cannot run ", python, ": ", std::strerror(errno),
                                               "; set GANGWAY_PYTHON to a Python with JAX")));
}

}  // namespace gangway::cli
