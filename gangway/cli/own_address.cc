// Implementation of own_address.h.
#include "gangway/cli/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"

namespace gangway::cli {
namespace {

// Without a scope: link-local addresses of IPv6 are left out by the callers.
std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& bits = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&bits)) {
      inet_ntop(AF_INET, &bits.s6_addr[12], text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &bits, text, sizeof(text));
    }
  }
  return text;
}

bool IsLinkLocal(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return (ntohl(v4.s_addr) >> 16) == 0xa9fe;  // 169.254.0.0/16
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Host and port of "host:port"; the host without brackets.
std::pair<std::string, std::string> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";  // as transport/grpc/address.h takes it
  return {host, colon == std::string::npos ? "" : address.substr(colon + 1)};
}

using Resolved = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null, with the reason in `why`, if the name stands for nothing.
Resolved Resolve(const std::string& host, const std::string& port, int kind, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &found);
  if (error != 0) why = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
  return {error == 0 ? found : nullptr, &freeaddrinfo};
}

// The addresses of this host's interfaces that are up, in the system's order, but loopback and link-local ones.
std::vector<std::string> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
  std::vector<std::string> v4, v6;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const unsigned flags = each->ifa_flags;
    if (each->ifa_addr == nullptr || (flags & IFF_UP) == 0 || (flags & IFF_LOOPBACK) != 0) continue;
    const std::string text = TextOf(each->ifa_addr);
    if (text.empty() || IsLinkLocal(each->ifa_addr)) continue;
    (each->ifa_addr->sa_family == AF_INET ? v4 : v6).push_back(text);
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

}  // namespace

bool Answers(const std::string& address, std::chrono::milliseconds limit) {
  const auto [host, port] = Split(address);
  std::string why;
  const Resolved found = Resolve(host, port, SOCK_STREAM, why);
  if (found == nullptr) return false;
  const FileDescriptor socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return false;
  if (connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0) return true;
  pollfd writable = {.fd = socket.get(), .events = POLLOUT};
  if (errno != EINPROGRESS || poll(&writable, 1, static_cast<int>(limit.count())) != 1)
    return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool IsLoopbackHost(const std::string& host) {
  return absl::StartsWith(host, "127.") || host == "localhost" || host == "::1";
}

absl::StatusOr<std::string> OwnAddressTowards(const std::string& peer) {
  const auto [host, port] = Split(peer);
  std::string why;
  const Resolved found = Resolve(host, port, SOCK_DGRAM, why);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const FileDescriptor socket(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t length = sizeof(own);
    if (!socket.valid() || connect(socket.get(), each->ai_addr, each->ai_addrlen) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
      why = std::strerror(errno);
      continue;
    }
    return TextOf(reinterpret_cast<const sockaddr*>(&own));
  }
  return absl::UnavailableError(
      absl::StrCat("cannot find the address from which this host reaches ", peer, " (", why,
                   "): name this host with --host, as others reach it"));
}

absl::StatusOr<std::string> OwnAddress() {
  const std::vector<std::string> own = InterfaceAddresses();
  const std::set<std::string> known(own.begin(), own.end());
  char name[HOST_NAME_MAX + 1] = {};
  std::string why;
  if (gethostname(name, HOST_NAME_MAX) == 0) {
    const Resolved found = Resolve(name, "", SOCK_DGRAM, why);
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      std::string text = TextOf(each->ai_addr);
      if (known.contains(text)) return text;
    }
  }
  if (!own.empty()) return own.front();
  return absl::UnavailableError(
      "this host has no address beyond loopback, so no other host could reach it: name it with "
      "--host, or listen at 127.0.0.1");
}

}  // namespace gangway::cli
