// Addresses of the gRPC transport: "127.0.0.1:8470", "[::1]:0", "localhost:0" and, with
// credentials, "host:port". SE-1: without credentials, every address that is not certainly this
// machine is rejected.
#ifndef GANGWAY_TRANSPORT_GRPC_ADDRESS_H_
#define GANGWAY_TRANSPORT_GRPC_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gangway::transport {

enum class Security { kPlain, kCredentials };

struct Address {
  std::string target;  // in gRPC's form
  std::string host;    // in brackets if IPv6
  int port = 0;
};

// INVALID_ARGUMENT: malformed, or not loopback while `security` is kPlain.
absl::StatusOr<Address> ParseAddress(const std::string& address, Security security);

// UNAVAILABLE, with the system's reason, when a socket cannot listen there now.
absl::Status CheckListenable(const std::string& address, const Address& parsed);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_ADDRESS_H_
