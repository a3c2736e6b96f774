// Implementation of remote_door.h.
#include "gangway/cli/remote_door.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"

#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/cli/announcement.h"
#include "gangway/cli/up.h"
#include "gangway/transport/handshake/cluster_token.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kStartLimit{30};

// Between fork and exec: async-signal-safe calls only. The front door gets its own process group,
// so that Ctrl-C reaches only the script.
[[noreturn]] void BecomeDoor(char* const* arguments, int output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  dup2(output, STDOUT_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

// The first line from `fd`, without its newline; empty if none came within kStartLimit.
std::string FirstLine(int fd) {
  const auto deadline = Clock::now() + kStartLimit;
  std::string line;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd readable = {.fd = fd, .events = POLLIN};
    const int count = left.count() <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left.count()));
    if (count < 0 && errno == EINTR) continue;
    char letter = 0;
    if (count <= 0 || read(fd, &letter, 1) != 1) return "";
    if (letter == '\n') return line;
    line += letter;
  }
}

}  // namespace

absl::StatusOr<int> StartRemoteDoor(const std::string& connect, const std::string& tls) {
  setenv("GANGWAY_TOKEN", transport::NewClusterToken().c_str(), 1);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("cannot create a pipe");
  FileDescriptor from(ends[0]), to(ends[1]);
  std::vector<std::string> command = {RoleBinary(), "front-door", "--connect",
                                      connect,      "--tls",      tls};
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError("cannot start a process for the front door");
  if (pid == 0) BecomeDoor(words.data(), to.get(), parent);
  to.Reset();
  const auto announced = FromLine(FirstLine(from.get()));
  int port = 0;
  if (announced && announced->kind == Announcement::Kind::kListening) {
    const size_t colon = announced->text.rfind(':');
    if (colon != std::string::npos && absl::SimpleAtoi(announced->text.substr(colon + 1), &port))
      return port;
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return absl::UnavailableError("the front door did not start: see its error above");
}

}  // namespace gangway::cli
