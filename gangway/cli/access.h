// The credentials of a cluster's process: its role's token and, beyond loopback, the TLS folder that
// `gangway certs` made. A state folder holds the cluster's secret, the token of each role, which is
// derived from it, and the verifiers, with which listeners check tokens; a TLS folder holds what its
// owner needs.
//
// Threading: functions without state. Failure: a status that names the file and says what to do.
#ifndef GANGWAY_CLI_ACCESS_H_
#define GANGWAY_CLI_ACCESS_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/transport/grpc/grpc.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/transport.h"

namespace gangway::cli {

// In a state folder and in a TLS folder.
inline constexpr char kSecretFile[] = "secret";
inline constexpr char kVerifiersFile[] = "verifiers";
inline constexpr char kRevokedFile[] = "revoked";  // in a TLS folder: revocations.h
std::string TokenFile(wire::Role role);  // "token" for clients, else such as "worker.token"

// Where a process finds its credentials, from its command line.
struct AccessFiles {
  std::string tls;         // a folder; empty: no TLS, loopback only
  std::string token_file;  // empty: the TLS folder's of `role`
  wire::Role role = wire::ROLE_CLIENT;
};

struct Access {
  std::string tls;
  std::string token;
};

// NOT_FOUND: a file does not exist. PERMISSION_DENIED: other users can read it.
// FAILED_PRECONDITION: the token is empty.
absl::StatusOr<Access> ReadAccess(const AccessFiles& files);

// The verifiers in the folder of the token. Errors: those of ReadAccess; FAILED_PRECONDITION: the
// file is damaged.
absl::StatusOr<transport::Verifiers> ReadVerifiers(const AccessFiles& files);

// Writes the tokens and the verifiers to the folder, from its secret. Creates that first if needed.
// Each file is readable by its owner only. Errors: those of ReadPrivateFile; FAILED_PRECONDITION: the
// secret is empty.
absl::Status EnsureTokens(const std::string& folder);

// NOT_FOUND: the file does not exist. PERMISSION_DENIED: other users can read it.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

// Writes the file atomically, for its owner only (0600).
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

// Unix socket addresses use local links, all others gRPC. With a TLS folder, both ends of a gRPC
// link present its certificate and require one from its CA. `silence_max`: see GrpcOptions.
absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(
    const std::string& tls,
    std::chrono::milliseconds silence_max = transport::GrpcOptions().silence_max);

// Adds the likely causes, and what to do, to a failed connection: TLS itself does not report them.
absl::Status ExplainConnection(const absl::Status& status, const std::string& address,
                               const std::string& tls);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ACCESS_H_
