// Implementation of descriptor_socket.h.
#include "gangway/transport/shm/descriptor_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/check.h"
#include "gangway/base/random.h"
#include "gangway/base/thread.h"

namespace gangway::transport {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kPendingMax = 128;
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

absl::Status Unavailable(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// An abstract address: its name begins with a zero byte. Returns 0 if `name` is empty or too long.
socklen_t MakeAddress(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) return 0;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool IsOfThisUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace

std::string NewDescriptorSecret() { return RandomBytes(kDescriptorSecretBytes); }

absl::StatusOr<std::unique_ptr<DescriptorListener>> DescriptorListener::Open() {
  std::string name =
      absl::StrCat("gangway-", ProcessId(), "-", absl::BytesToHexString(RandomBytes(16)));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.valid()) return Unavailable("cannot create a unix socket");
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(socket.get(), kBacklog) != 0)
    return Unavailable("cannot listen at a unix socket");
  return std::unique_ptr<DescriptorListener>(
      new DescriptorListener(std::move(socket), std::move(name)));
}

void DescriptorListener::AcceptAll() {
  while (true) {
    FileDescriptor accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted.valid()) return;
    if (!IsOfThisUser(accepted.get())) continue;
    pending_.push_back({std::move(accepted), ""});
    if (pending_.size() > kPendingMax) pending_.pop_front();
  }
}

FileDescriptor DescriptorListener::Take(const std::string& secret) {
  AcceptAll();
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    if (pending->secret.empty()) {
      char said[kDescriptorSecretBytes + 1];
      const ssize_t size = recv(pending->socket.get(), said, sizeof(said), 0);
      if (size < 0 && errno == EAGAIN) {
        ++pending;
        continue;
      }
      if (size != kDescriptorSecretBytes) {  // closed, or not a secret
        pending = pending_.erase(pending);
        continue;
      }
      pending->secret.assign(said, kDescriptorSecretBytes);
    }
    if (pending->secret == secret) {
      FileDescriptor socket = std::move(pending->socket);
      pending_.erase(pending);
      return socket;
    }
    ++pending;
  }
  return {};
}

absl::StatusOr<FileDescriptor> ConnectDescriptors(const std::string& name,
                                                  const std::string& secret) {
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  if (size == 0) return absl::UnavailableError("the socket name is empty or too long");
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.valid()) return Unavailable("cannot create a unix socket");
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    return Unavailable("no process of this host listens there");
  if (!IsOfThisUser(socket.get()))
    return absl::UnavailableError("the socket belongs to another user");
  if (send(socket.get(), secret.data(), secret.size(), MSG_NOSIGNAL) < 0)
    return Unavailable("cannot send the secret");
  return socket;
}

absl::Status SendDescriptor(const FileDescriptor& socket, SegmentName name, int descriptor) {
  iovec data{&name, sizeof(name)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0)
    return Unavailable("cannot send the descriptor");
  return absl::OkStatus();
}

std::optional<ReceivedDescriptor> ReceiveDescriptor(const FileDescriptor& socket) {
  ReceivedDescriptor received;
  iovec data{&received.name, sizeof(received.name)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (size < 0) return std::nullopt;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    // Alignment leaves room for a second descriptor, which a hostile peer may send: all are
    // received, and all but the last are closed.
    for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + at, sizeof(int));
      received.descriptor = FileDescriptor(descriptor);
    }
  }
  if (size != sizeof(SegmentName) || !received.descriptor.valid()) return std::nullopt;
  return received;
}

}  // namespace gangway::transport
