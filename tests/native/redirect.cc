// For LD_PRELOAD: connections of this process to a port that GANGWAY_TEST_LINKS names go to another port of loopback,
// where a test's proxy listens (testing/link_proxy.py). So each link of each process can be broken alone, although all
// processes read the same cluster.toml. The variable holds FROM=TO pairs of ports, separated by commas.
//
// Threading: any thread. Failure: without the variable, and for other ports, connect() is the system's.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

// The port that stands for `port` in GANGWAY_TEST_LINKS; `port` itself if none does.
uint16_t Redirected(uint16_t port) {
  const char* at = std::getenv("GANGWAY_TEST_LINKS");
  while (at != nullptr && *at != '\0') {
    char* end = nullptr;
    const unsigned long from = std::strtoul(at, &end, 10);
    if (*end != '=') break;
    const unsigned long to = std::strtoul(end + 1, &end, 10);
    if (from == port) return static_cast<uint16_t>(to);
    at = *end == ',' ? end + 1 : nullptr;
  }
  return port;
}

}  // namespace

extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  using Connect = int (*)(int, const sockaddr*, socklen_t);
  static const auto real = reinterpret_cast<Connect>(dlsym(RTLD_NEXT, "connect"));
  sockaddr_storage other{};
  if (address == nullptr || size > sizeof(other)) return real(fd, address, size);
  std::memcpy(&other, address, size);
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(other);
    const uint16_t to = Redirected(ntohs(v4.sin_port));
    if (to == ntohs(v4.sin_port)) return real(fd, address, size);
    v4.sin_port = htons(to);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(other);
    const uint16_t to = Redirected(ntohs(v6.sin6_port));
    if (to == ntohs(v6.sin6_port)) return real(fd, address, size);
    const uint32_t loopback = htonl(INADDR_LOOPBACK);
    v6.sin6_port = htons(to);
    std::memcpy(v6.sin6_addr.s6_addr + 12, &loopback, sizeof(loopback));  // gRPC maps IPv4 to IPv6
  }
  return real(fd, reinterpret_cast<const sockaddr*>(&other), size);
}
