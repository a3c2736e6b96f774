// Implementation of commands.h.
#include "gangway/cli/commands.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
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
constexpr std::chrono::milliseconds kRetryFirst{100}, kRetryMax{2000};

int Fail(const char* command, const absl::Status& status) {
  fprintf(stderr, "gangway %s: %s\n", command, std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<wire::StatusReply> Ask(const ClusterChoice& cluster,
                                      std::chrono::milliseconds ready_limit) {
  GANGWAY_ASSIGN_OR_RETURN(auto door, OpenControl(cluster));
  auto status = AskStatus(*door.transport, door.address, door.token, kStatusLimit, ready_limit);
  if (!status.ok())
    return ExplainConnection(status.status(), door.address,
                             cluster.Address().empty() ? "" : cluster.tls);
  return status;
}

// Asks until the controller answers, whose answer then waits for the other processes.
absl::StatusOr<wire::StatusReply> AwaitReady(const ClusterChoice& cluster,
                                             std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  auto delay = kRetryFirst;
  while (true) {
    const auto left =
        std::max(std::chrono::milliseconds(0),
                 std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
    auto status = Ask(cluster, left);
    const bool absent = absl::IsUnavailable(status.status()) ||
                        absl::IsDeadlineExceeded(status.status()) ||
                        (absl::IsNotFound(status.status()) && cluster.Address().empty());
    if (!absent || Clock::now() + delay >= deadline) return status;
    std::this_thread::sleep_for(delay);  // there is no event of a controller that is not there
    delay = std::min(delay * 2, kRetryMax);
  }
}

}  // namespace

std::string ClusterChoice::Address() const {
  if (!connect.empty() || port >= 0 || !state_root.empty()) return connect;
  const char* address = std::getenv("GANGWAY_ADDRESS");
  return address == nullptr ? "" : address;
}

absl::StatusOr<ControlDoor> OpenControl(const ClusterChoice& cluster) {
  if (const std::string address = cluster.Address(); !address.empty()) {
    AccessFiles files = {.tls = cluster.tls, .role = wire::ROLE_TOOL};
    if (cluster.tls.empty()) {
      GANGWAY_ASSIGN_OR_RETURN(auto port, ChoosePort(cluster.port));
      files.token_file = StateDir(StateRoot(cluster.state_root), port).File(TokenFile(files.role));
    }
    GANGWAY_ASSIGN_OR_RETURN(auto access, ReadAccess(files));
    GANGWAY_ASSIGN_OR_RETURN(auto transport, OpenTransport(access.tls));
    return ControlDoor{std::move(transport), address, std::move(access.token)};
  }
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

int Status(const StatusOptions& options) {
  auto status = options.wait_s ? AwaitReady(options.cluster, std::chrono::seconds(*options.wait_s))
                               : Ask(options.cluster, std::chrono::milliseconds(0));
  if (!status.ok()) return Fail("status", status.status());
  const std::string text =
      options.form == StatusForm::kJson ? ToJson(*status) + "\n" : ToTable(*status);
  fwrite(text.data(), 1, text.size(), stdout);
  if (!options.wait_s) return 0;
  const std::string absent = Absent(*status);
  if (absent.empty()) return 0;
  return Fail("status",
              absl::DeadlineExceededError(absl::StrCat(
                  "after ", *options.wait_s, " s, the cluster still waits for ", absent)));
}

}  // namespace gangway::cli
