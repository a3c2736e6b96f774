// Implementation of address.h.
#include "gangway/transport/grpc/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"

namespace gangway::transport {
namespace {

absl::Status Malformed(const std::string& address, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the address \"", address, "\" ", why, "; expected host:port or [ipv6]:port"));
}

bool IsLoopback(const Address& address, in_addr* v4, in6_addr* v6, bool is_v4, bool is_v6) {
  if (is_v4) return (ntohl(v4->s_addr) >> 24) == 127;
  return is_v6 && IN6_IS_ADDR_LOOPBACK(v6);
}

// A socket address of either family.
struct SocketAddress {
  union {
    sockaddr base;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t length = 0;
};

bool ToSocketAddress(const Address& parsed, SocketAddress* out) {
  std::memset(&out->v6, 0, sizeof(out->v6));
  if (absl::StartsWith(parsed.target, "ipv4:")) {
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(static_cast<uint16_t>(parsed.port));
    out->length = sizeof(out->v4);
    return inet_pton(AF_INET, parsed.host.c_str(), &out->v4.sin_addr) == 1;
  }
  if (absl::StartsWith(parsed.target, "ipv6:")) {
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(static_cast<uint16_t>(parsed.port));
    out->length = sizeof(out->v6);
    return inet_pton(AF_INET6, parsed.host.substr(1, parsed.host.size() - 2).c_str(),
                     &out->v6.sin6_addr) == 1;
  }
  return false;
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& address, Security security) {
  Address parsed;
  size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return Malformed(address, "has no host and port");
  std::string port = address.substr(colon + 1);
  bool digits = !port.empty() && port.size() <= 5 &&
                port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &parsed.port) || parsed.port > 65535) {
    return Malformed(address, "has no port from 0 to 65535");
  }
  parsed.host = address.substr(0, colon);
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";  // regardless of the hosts file
  in_addr v4;
  in6_addr v6;
  bool is_v4 = inet_pton(AF_INET, parsed.host.c_str(), &v4) == 1;
  bool bracketed =
      parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']';
  bool is_v6 = bracketed &&
               inet_pton(AF_INET6, parsed.host.substr(1, parsed.host.size() - 2).c_str(), &v6) == 1;
  if (!is_v6 && parsed.host.find_first_of("[]:/ ") != std::string::npos)
    return Malformed(address, "has a bad host");
  if (security == Security::kPlain && !IsLoopback(parsed, &v4, &v6, is_v4, is_v6)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the address ", address,
        " is not loopback and there are no TLS credentials: use 127.0.0.1, [::1] or a unix "
        "socket, or make certificates with `gangway certs` and give their folder with --tls"));
  }
  parsed.target = absl::StrCat(is_v4   ? "ipv4:"
                               : is_v6 ? "ipv6:"
                                       : "dns:///",
                               parsed.host, ":", parsed.port);
  return parsed;
}

absl::Status CheckListenable(const std::string& address, const Address& parsed) {
  SocketAddress socket_address;
  if (!ToSocketAddress(parsed, &socket_address)) return absl::OkStatus();  // a name: gRPC checks it
  const FileDescriptor socket(
      ::socket(socket_address.base.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid())
    return absl::UnavailableError(
        absl::StrCat("cannot create a socket for ", address, ": ", std::strerror(errno)));
  int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), &socket_address.base, socket_address.length) != 0 ||
      listen(socket.get(), 1) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen at ", address, ": ", std::strerror(errno), "; choose another port, or 0"));
  }
  return absl::OkStatus();
}

}  // namespace gangway::transport
