// Implementation of tcp_peer.h.
#include "gangway/base/tcp_peer.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace gangway {

std::string GrpcPeerName(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& name = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &name.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(name.sin_port));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& name = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&name.sin6_addr)) {
    inet_ntop(AF_INET, &name.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(name.sin6_port));
  }
  inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof(text));
  const std::string scope = name.sin6_scope_id == 0
                                ? ""
                                : absl::StrCat("%25", name.sin6_scope_id);  // of a link-local one
  return absl::StrCat("ipv6:%5B", text, scope, "%5D:", ntohs(name.sin6_port));
}

bool HasPeerClosed(int fd) {
  pollfd state = {.fd = fd, .events = POLLRDHUP};
  return poll(&state, 1, 0) > 0;
}

uint64_t BytesReceived(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

void ResetConnection(FileDescriptor& socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  if (socket.valid()) {
    (void)setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    shutdown(socket.get(), SHUT_RDWR);
  }
  socket.Reset();
}

}  // namespace gangway
