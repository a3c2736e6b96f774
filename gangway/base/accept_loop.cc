// Implementation of accept_loop.h.
#include "gangway/base/accept_loop.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/log.h"
#include "gangway/base/status.h"

namespace gangway {
namespace {

constexpr int kBacklog = 4096;  // waiting connections; the system may lower it
constexpr int kTurnConnections = 64;

absl::Status Error(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::Status AcceptLoop::Open(int family, const void* address, size_t size) {
  listener_.Reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener_.valid() || !wake_.valid()) return Error("cannot create a socket");
  const int fd = listener_.get();
  const int on = 1, off = 0;
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const auto* generic = static_cast<const sockaddr*>(address);
  if (bind(fd, generic, static_cast<socklen_t>(size)) != 0 || listen(fd, kBacklog) != 0)
    return Error("cannot listen");
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return Error("cannot read the bound address");
  if (family == AF_INET) port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  if (family == AF_INET6) port_ = ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  if (family == AF_UNIX) {
    const auto& name = reinterpret_cast<const sockaddr_un&>(bound);
    const size_t bytes = length - offsetof(sockaddr_un, sun_path);
    path_.assign(name.sun_path, name.sun_path[0] == '\0' ? bytes : strnlen(name.sun_path, bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::ListenTcp(const std::string& host,
                                                                  int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  absl::Status status;
  std::unique_ptr<AcceptLoop> loop;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    loop.reset(new AcceptLoop);
    status = loop->Open(each->ai_family, each->ai_addr, each->ai_addrlen);
    if (status.ok()) break;
  }
  freeaddrinfo(found);
  GANGWAY_RETURN_IF_ERROR(status);
  return loop;
}

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::ListenUnix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return absl::UnavailableError("the socket's path is empty or too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  const bool file = path[0] != '\0';
  struct stat there;
  if (file && lstat(path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) unlink(path.c_str());
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop);
  // Every byte of an abstract name counts; for an empty name the system chooses one.
  const size_t abstract = path.size() == 1 ? 0 : path.size();
  const size_t size = file ? sizeof(address) : offsetof(sockaddr_un, sun_path) + abstract;
  GANGWAY_RETURN_IF_ERROR(loop->Open(AF_UNIX, &address, size));
  return loop;
}

AcceptLoop::~AcceptLoop() {
  Stop();
  if (!path_.empty() && path_[0] != '\0') unlink(path_.c_str());
}

void AcceptLoop::Start(Take take) {
  thread_ = Thread("gangway-accept", [this, take = std::move(take)] { Run(take); });
}

void AcceptLoop::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.Join();
}

void AcceptLoop::Run(const Take& take) {
  bool short_of = false;
  while (true) {
    // While out of descriptors, the listener stays readable, so the poll leaves it out: only the
    // wake ends it early.
    pollfd fds[] = {{.fd = wake_.get(), .events = POLLIN},
                    {.fd = short_of ? -1 : listener_.get(), .events = POLLIN}};
    poll(fds, 2, short_of ? static_cast<int>(kRetryAfter.count()) : -1);
    if (fds[0].revents != 0) return;
    short_of = !TakeWaiting(take);
  }
}

bool AcceptLoop::TakeWaiting(const Take& take) {
  for (int i = 0; i < kTurnConnections; ++i) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && OutOfResources(errno)) {
      rlimit limit = {};
      getrlimit(RLIMIT_NOFILE, &limit);
      if (!std::exchange(told_, true)) {
        Log(LogLevel::kError,
            absl::StrCat("cannot accept connections: ", std::strerror(errno),
                         " (the limit of open files is ", limit.rlim_cur,
                         "). New connections wait until others close; raise the limit with "
                         "`ulimit -n` or LimitNOFILE="));
      }
      return false;
    }
    if (fd < 0) return true;  // no connection is pending, or one closed before it was accepted
    if (std::exchange(told_, false)) Log(LogLevel::kInfo, "connections are accepted again");
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // no effect on a unix socket
    take(fd);
  }
  return true;
}

}  // namespace gangway
