// `gangway certs`: a certificate authority of one cluster's own, and the one certificate that all
// its processes present to each other (mutual TLS, SE-1). The authority's key is not kept, so that
// nothing can ever be added to what it signed.
//
// Threading: functions without state. Failure: a status that says what to do; what was there before
// is never overwritten.
#ifndef GANGWAY_CLI_CERTS_H_
#define GANGWAY_CLI_CERTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gangway::cli {

struct CertsOptions {
  std::string folder;
  std::vector<std::string> hosts;  // names and addresses; loopback is always among them
  int days = 730;                  // valid from now
};

// Writes ca.pem, cert.pem, key.pem and token, each for its owner only. ALREADY_EXISTS: one of them
// is there. INVALID_ARGUMENT: a malformed host, no days.
absl::Status MakeCerts(const CertsOptions& options);

// Whether the certificate in `folder` is valid now and names `host`. FAILED_PRECONDITION: not.
absl::Status CheckCertificate(const std::string& folder, const std::string& host);

// The subcommand; the exit status.
int Certs(const CertsOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CERTS_H_
