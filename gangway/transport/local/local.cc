// Implementation of local.h.
#include "gangway/transport/local/local.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/accept_loop.h"
#include "gangway/base/clock.h"
#include "gangway/base/file_descriptor.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/transport/local/connection.h"
#include "gangway/transport/local/greeting.h"
#include "gangway/transport/local/io_thread.h"

namespace gangway::transport {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kFile = "unix:", kAbstract = "unix-abstract:";

// The name in the system's form: a path, or a zero byte and a name. `may_be_any`: an abstract name
// may be empty.
absl::StatusOr<std::string> SocketName(const std::string& address, bool may_be_any) {
  std::string name;
  if (address.starts_with(kAbstract)) {
    name = absl::StrCat(std::string(1, '\0'), address.substr(kAbstract.size()));
  } else if (address.starts_with(kFile)) {
    name = address.substr(kFile.size());
  }
  const size_t least = address.starts_with(kAbstract) && !may_be_any ? 2 : 1;
  if (name.size() < least || name.size() >= sizeof(sockaddr_un::sun_path) ||
      name.find('\0', address.starts_with(kAbstract) ? 1 : 0) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the address \"", address, "\" names no unix socket; expected unix:/path or ",
        "unix-abstract:name, of at most ", sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  return name;
}

absl::Status Unreachable(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("no process accepted a link at ", address, ": ", why));
}

// NOT_FOUND: no process listens there. UNAVAILABLE: one may, but it cannot be reached within the
// limit.
absl::StatusOr<FileDescriptor> ConnectSocket(const std::string& address, const std::string& name,
                                             milliseconds limit) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Unreachable(address, std::strerror(errno));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, name.data(), name.size());
  // Every byte of an abstract name counts.
  const size_t size = name[0] == '\0' ? offsetof(sockaddr_un, sun_path) + name.size() : sizeof(to);
  // With a full backlog, connect waits as long as a send may take.
  const timeval wait{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
  const auto* generic = reinterpret_cast<const sockaddr*>(&to);
  while (connect(socket.get(), generic, static_cast<socklen_t>(size)) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT)
      return absl::NotFoundError(Unreachable(address, std::strerror(errno)).message());
    if (errno != EINTR) return Unreachable(address, std::strerror(errno));
  }
  return socket;
}

absl::Status Greet(const std::string& address, const FileDescriptor& socket,
                   Clock::time_point deadline) {
  if (send(socket.get(), kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kGreeting.size()))
    return Unreachable(address, std::strerror(errno));
  std::string said;
  while (said.size() < kGreeting.size()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd answer{.fd = socket.get(), .events = POLLIN};
    const int ready =
        left > 0 ? poll(&answer, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 && left <= 0) return Unreachable(address, "no answer within the limit");
    char bytes[kGreeting.size()];
    const ssize_t count = recv(socket.get(), bytes, kGreeting.size() - said.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return Unreachable(address, "the process there closed the connection");
    said.append(bytes, static_cast<size_t>(count));
    if (said != kGreeting.substr(0, said.size()))
      return Unreachable(address, "the process there is not Gangway, or runs another version");
  }
  return absl::OkStatus();
}

// The process at the other end; pid 0 if the system does not say.
ucred PeerOf(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer;
}

// An abstract name has no folder whose permissions protect it, so both ends must have one user.
bool MayTalk(const std::string& address, const ucred& peer) {
  return !address.starts_with(kAbstract) || (peer.pid != 0 && peer.uid == geteuid());
}

constexpr uint32_t kAccepts = EPOLLIN;

// The socket of a listener, which the IoThread watches.
class Accepting final : public IoThread::Watched {
 public:
  Accepting(IoThread* io, std::unique_ptr<AcceptLoop> loop, AcceptLoop::Take take)
      : io_(io),
        id_(io->NextId()),
        fd_(loop->fd()),
        take_(std::move(take)),
        loop_(std::move(loop)) {}

  uint64_t id() const { return id_; }
  int fd() const { return fd_; }

  // Returns when no call of `take` is in progress; none follows, and the IoThread's interest in the socket is no longer
  // changed. The socket is open for as long as the result lives.
  std::unique_ptr<AcceptLoop> Close() GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::move(loop_);
  }

  void OnReady(uint32_t /*epoll_events*/) override { TakeWaiting(/*was_short=*/false); }

  Clock::time_point OnTick(Clock::time_point /*now*/) override {
    return is_short_ ? TakeWaiting(/*was_short=*/true) : Clock::time_point::max();
  }

 private:
  // While out of descriptors, the socket stays readable, so it is not watched.
  Clock::time_point TakeWaiting(bool was_short) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (loop_ == nullptr) return Clock::time_point::max();
    is_short_ = !loop_->TakeWaiting(take_);
    if (is_short_ != was_short) io_->Change(id_, fd_, is_short_ ? 0U : kAccepts);
    if (!is_short_) return Clock::time_point::max();
    const auto again = Clock::now() + AcceptLoop::kRetryAfter;
    if (!was_short) io_->TickAt(again);
    return again;
  }

  IoThread* const io_;
  const uint64_t id_;
  const int fd_;
  const AcceptLoop::Take take_;
  bool is_short_ = false;  // of descriptors; accessed by the IoThread only
  Mutex mutex_;
  std::unique_ptr<AcceptLoop> loop_ GANGWAY_GUARDED_BY(mutex_);
};

class LocalListener final : public Listener {
 public:
  LocalListener(std::string address, std::shared_ptr<IoThread> io)
      : address_(std::move(address)), io_(std::move(io)) {}

  ~LocalListener() override {
    if (accepting_ != nullptr) {
      const std::unique_ptr<AcceptLoop> open = accepting_->Close();
      io_->Forget(accepting_->id(), accepting_->fd());
    }
    connections_->Shut(
        absl::CancelledError(absl::StrCat("the listener at ", address_, " was closed")));
  }

  // UNAVAILABLE: the system cannot watch another socket.
  absl::Status Open(std::unique_ptr<AcceptLoop> loop, Accept accept, LinkOptions options,
                    size_t message_bytes_max) {
    auto greeted = [accept = std::move(accept)](const std::shared_ptr<Connection>& connection) {
      connection->Start(accept(std::make_shared<LinkHandle<Connection>>(connection)));
    };
    auto take = [this, options, message_bytes_max, greeted = std::move(greeted)](int fd) {
      FileDescriptor socket(fd);
      const ucred peer = PeerOf(socket);
      if (!MayTalk(address_, peer)) return;
      auto connection = std::make_shared<Connection>(
          connections_, io_.get(), std::move(socket), options, message_bytes_max,
          absl::StrCat(address_, " (process ", peer.pid, ")"));
      connection->Init();
      if (connections_->Add(connection)) connection->Serve(greeted);
    };
    auto accepting = std::make_shared<Accepting>(io_.get(), std::move(loop), std::move(take));
    GANGWAY_RETURN_IF_ERROR(io_->Watch(accepting->id(), accepting->fd(), kAccepts, accepting));
    accepting_ = std::move(accepting);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  const std::string address_;
  const std::shared_ptr<IoThread> io_;
  std::shared_ptr<Accepting> accepting_;
  const std::shared_ptr<ConnectionSet> connections_ = std::make_shared<ConnectionSet>();
};

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(LocalOptions options) : options_(options) {}
  ~LocalTransport() override {
    connections_->Shut(absl::CancelledError("the transport was closed"));
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Accept accept,
                                                   LinkOptions options) override {
    GANGWAY_ASSIGN_OR_RETURN(auto name, SocketName(address, /*may_be_any=*/true));
    GANGWAY_ASSIGN_OR_RETURN(auto io, Thread());
    // A socket file is not taken over while a process listens there or may listen there.
    if (name.front() != '\0') {
      const absl::Status other = ConnectSocket(address, name, milliseconds(1000)).status();
      if (!absl::IsNotFound(other)) {
        return absl::UnavailableError(
            absl::StrCat("cannot listen at ", address, ": another process listens there",
                         other.ok() ? "" : ", or may: ", std::string(other.message())));
      }
    }
    auto loop = AcceptLoop::ListenUnix(name);
    if (!loop.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", address, ": ", std::string(loop.status().message())));
    }
    std::string real = address;
    if (name.front() == '\0')
      real = absl::StrCat(std::string(kAbstract), (*loop)->path().substr(1));
    auto listener = std::make_unique<LocalListener>(std::move(real), io);
    GANGWAY_RETURN_IF_ERROR(
        listener->Open(*std::move(loop), std::move(accept), options, options_.message_bytes_max));
    return listener;
  }

  absl::StatusOr<std::shared_ptr<Link>> Connect(const std::string& address, LinkEvents events,
                                                milliseconds limit, LinkOptions options) override {
    limit = std::max(limit, milliseconds(1));
    const auto deadline = Clock::now() + limit;
    GANGWAY_ASSIGN_OR_RETURN(auto name, SocketName(address, /*may_be_any=*/false));
    auto socket = ConnectSocket(address, name, limit);
    if (!socket.ok()) return absl::UnavailableError(socket.status().message());
    if (!MayTalk(address, PeerOf(*socket)))
      return Unreachable(address, "the process there belongs to another user");
    GANGWAY_RETURN_IF_ERROR(Greet(address, *socket, deadline));
    GANGWAY_ASSIGN_OR_RETURN(auto io, Thread());
    auto connection = std::make_shared<Connection>(connections_, io.get(), *std::move(socket),
                                                   options, options_.message_bytes_max, address);
    connection->Init();
    if (!connections_->Add(connection)) return absl::UnavailableError("the transport is closed");
    connection->Start(std::move(events));
    connection->Serve();
    return std::make_shared<LinkHandle<Connection>>(std::move(connection));
  }

 private:
  // Started with the first link or listener.
  absl::StatusOr<std::shared_ptr<IoThread>> Thread() {
    MutexLock lock(mutex_);
    if (io_ == nullptr) {
      GANGWAY_ASSIGN_OR_RETURN(io_, IoThread::Start());
    }
    return io_;
  }

  const LocalOptions options_;
  const std::shared_ptr<ConnectionSet> connections_ = std::make_shared<ConnectionSet>();
  Mutex mutex_;
  std::shared_ptr<IoThread> io_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Transport> NewLocalTransport(LocalOptions options) {
  return std::make_unique<LocalTransport>(options);
}

bool IsLocalAddress(const std::string& address) {
  return address.starts_with(kFile) || address.starts_with(kAbstract);
}

}  // namespace gangway::transport
