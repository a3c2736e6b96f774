// Implementation of commands.h.
#include "gangway/cli/commands.h"

#include <poll.h>
#include <signal.h>
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

}  // namespace gangway::cli
