// What a process of a cluster needs to be let in: the cluster's token and, beyond loopback, the TLS
// folder that `gangway certs` made (ca.pem, cert.pem, key.pem, token).
//
// Threading: functions without state. Failure: a status that names the file and says what to do.
#ifndef GANGWAY_CLI_ACCESS_H_
#define GANGWAY_CLI_ACCESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/transport/transport.h"

namespace gangway::cli {

inline constexpr char kTokenFile[] = "token";  // in a state folder and in a TLS folder

// Where a process finds them, as its command line names them.
struct AccessFiles {
  std::string tls;         // a folder; empty: no TLS, loopback only
  std::string token_file;  // empty: the TLS folder's
};

struct Access {
  std::string tls;
  std::string token;
};

// NOT_FOUND, PERMISSION_DENIED: a file is not there, or others may read it.
absl::StatusOr<Access> ReadAccess(const AccessFiles& files);

// The token in `path`, made first where there is none: the file is its owner's alone.
absl::StatusOr<std::string> EnsureToken(const std::string& path);

// NOT_FOUND; PERMISSION_DENIED: others may read it.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

// Appears whole or not at all, for its owner only (0600).
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

// Unix sockets as such; other addresses over gRPC, where with a TLS folder both sides present its
// certificate and demand one of its CA.
absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(const std::string& tls);

// Adds to a failed connection what TLS does not tell: why it may have failed, and what to do.
absl::Status ExplainConnection(const absl::Status& status, const std::string& address,
                               const std::string& tls);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_ACCESS_H_
