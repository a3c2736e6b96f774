// The credentials of a cluster's process: its role's token and, beyond loopback, the TLS folder that
// `gangway certs` made. A state folder holds the cluster's secret, the token of each role, which is
// derived from it, and the verifiers, with which listeners check tokens; a TLS folder holds what its
// owner needs.
//
// Threading: functions without state. Failure: a status that names the file and says what to do.
#ifndef GANGWAY_CLI_ACCESS_H_
#define GANGWAY_CLI_ACCESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/private_file.h"
#include "gangway/transport/handshake/cluster_token.h"
#include "gangway/transport/tls/revocations.h"
#include "gangway/transport/tls/tls.h"

namespace gangway::cli {

using transport::ExplainConnection;
using transport::OpenTransport;

// In a state folder and in a TLS folder.
inline constexpr char kSecretFile[] = "secret";
inline constexpr char kVerifiersFile[] = "verifiers";
using transport::kRevokedFile;           // in a TLS folder
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

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ACCESS_H_
