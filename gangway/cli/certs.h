// `gangway certs`: creates a certificate authority for one cluster, and the one certificate that
// all its processes present to each other (mutual TLS, SE-1). The authority's key is not kept, so
// the authority can never sign another certificate.
//
// Threading: functions without state. Failure: a status that says what to do; existing files are
// never overwritten.
#ifndef GANGWAY_CLI_CERTS_H_
#define GANGWAY_CLI_CERTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gangway::cli {

struct CertsOptions {
  std::string folder;
  std::vector<std::string> hosts;  // names and addresses; loopback is always included
  int days = 730;                  // valid from now
};

// Writes ca.pem, cert.pem, key.pem and token, each for its owner only. ALREADY_EXISTS: one of them
// exists. INVALID_ARGUMENT: a malformed host, or `days` out of range.
absl::Status MakeCerts(const CertsOptions& options);

// Checks that the certificate in `folder` is valid now and names `host`; else FAILED_PRECONDITION.
absl::Status CheckCertificate(const std::string& folder, const std::string& host);

// Runs the subcommand; returns the exit status.
int Certs(const CertsOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CERTS_H_
