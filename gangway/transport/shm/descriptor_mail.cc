// Implementation of descriptor_mail.h.
#include "gangway/transport/shm/descriptor_mail.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/random.h"
#include "gangway/base/thread.h"
#include "gangway/transport/shm/descriptor_socket.h"

namespace gangway::transport {
namespace {

constexpr int kSocketType = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kReceivedAtOnce = 64;

struct Letter {
  std::array<char, kDescriptorSecretBytes> secret;
  uint64_t sender;
};

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

constexpr size_t kControlBytes =
    CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kMailDescriptorsMax);

// What the kernel says of a message: all its descriptors, so that none is leaked.
struct Attached {
  std::vector<FileDescriptor> descriptors;
  bool is_of_this_user = false;
};
Attached TakeAttached(msghdr& message) {
  Attached attached;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    const size_t bytes = header->cmsg_len - CMSG_LEN(0);
    if (header->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(ucred)) {
      ucred from{};
      std::memcpy(&from, CMSG_DATA(header), sizeof(from));
      attached.is_of_this_user = from.uid == geteuid();
    }
    if (header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + at, sizeof(int));
      attached.descriptors.emplace_back(descriptor);
    }
  }
  return attached;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorMailbox>> DescriptorMailbox::Open() {
  std::string name =
      absl::StrCat("gangway-", ProcessId(), "-", absl::BytesToHexString(RandomBytes(16)));
  FileDescriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.valid()) return Unavailable("cannot create a unix socket");
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  const int yes = 1;
  if (setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0 ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    return Unavailable("cannot bind a unix socket");
  return std::unique_ptr<DescriptorMailbox>(
      new DescriptorMailbox(std::move(socket), std::move(name), NewDescriptorSecret()));
}

std::optional<DescriptorMail> DescriptorMailbox::Receive() {
  for (int i = 0; i < kReceivedAtOnce; ++i) {
    Letter letter{};
    iovec data{&letter, sizeof(letter)};
    alignas(cmsghdr) char control[kControlBytes];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (size < 0) return std::nullopt;
    Attached attached = TakeAttached(message);
    const bool is_partial = (message.msg_flags & MSG_CTRUNC) != 0;
    if (is_partial) attached.descriptors.clear();
    if (size == sizeof(letter) && attached.is_of_this_user &&
        (is_partial || !attached.descriptors.empty()) &&
        std::string_view(letter.secret.data(), letter.secret.size()) == secret_)
      return DescriptorMail{letter.sender, std::move(attached.descriptors)};
  }
  return std::nullopt;
}

absl::Status DescriptorMailbox::Send(const std::string& name, const std::string& secret,
                                     uint64_t sender, std::span<const int> descriptors) const {
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  if (size == 0 || secret.size() != kDescriptorSecretBytes)
    return absl::UnavailableError("there is no such name or secret");
  Letter letter{.secret = {}, .sender = sender};
  std::memcpy(letter.secret.data(), secret.data(), secret.size());
  iovec data{&letter, sizeof(letter)};
  if (descriptors.empty() || descriptors.size() > kMailDescriptorsMax) {
    return absl::InvalidArgumentError(absl::StrCat("a mail carries one to ", kMailDescriptorsMax,
                                                   " descriptors, not ", descriptors.size()));
  }
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = size;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == ENOBUFS)
    return absl::ResourceExhaustedError("the other process's box is full");
  return Unavailable("no process of this host has a box of this name");
}

}  // namespace gangway::transport
