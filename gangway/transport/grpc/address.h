// Addresses of the gRPC transport: "127.0.0.1:8470", "[::1]:0", "localhost:0", "unix:/path",
// "unix-abstract:name" and, with credentials, "host:port". SE-1: without credentials everything
// that is not surely this machine is refused.
#ifndef GANGWAY_TRANSPORT_GRPC_ADDRESS_H_
#define GANGWAY_TRANSPORT_GRPC_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::transport {

enum class Security { kPlain, kCredentials };

struct Address {
  std::string target;  // in gRPC's form
  std::string host;    // of a TCP address, with brackets where IPv6; empty for a unix socket
  int port = 0;
};

// INVALID_ARGUMENT: malformed, or not loopback while `security` is kPlain.
absl::StatusOr<Address> ParseAddress(const std::string& address, Security security);

// UNAVAILABLE, with the system's reason, when a socket cannot listen there now. gRPC itself would
// only log it, and would take a unix socket away from a process that is using it.
absl::Status CheckListenable(const std::string& address, const Address& parsed);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_ADDRESS_H_
