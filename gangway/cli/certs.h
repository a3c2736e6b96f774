// `gangway certs`: creates a certificate authority for one cluster, the certificates that its
// processes present to each other (mutual TLS, SE-1), and the list of revoked ones. The certificate
// of the folder itself is for all roles; AddCerts makes one for a role on a host, or for a person, in
// a folder of its own with the tokens that the role needs. Its common name is ROLE/NAME.
//
// Threading: functions without state. Failure: a status that says what to do; existing files are
// never overwritten, except the list.
#ifndef GANGWAY_CLI_CERTS_H_
#define GANGWAY_CLI_CERTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/transport/tls/certificate_id.h"

namespace gangway::cli {

using transport::CertificateId;
using transport::ReadCertificateId;

struct CertsOptions {
  std::string folder;
  std::vector<std::string> hosts;  // names and addresses; loopback is always included
  bool any_host = false;           // of MakeCerts: peers do not check the names of hosts
  int days = 730;                  // valid from now
  std::string add;                 // of AddCerts: the name
  std::string role;                // of AddCerts: controller, scheduler, worker or client
  std::string revoke;              // of Revoke: a name that was added
};

// Writes ca.pem, ca.key, cert.pem, key.pem, the cluster's secret, tokens and verifiers, each for its
// owner only. ALREADY_EXISTS: one of them exists. INVALID_ARGUMENT: a malformed host, or `days` out
// of range.
absl::Status MakeCerts(const CertsOptions& options);

// Makes the folder `add` in a folder of MakeCerts. Errors as MakeCerts, and INVALID_ARGUMENT: not a
// name or a role, or a role that serves others without hosts, unless the cluster's certificates are
// for any host. NOT_FOUND: the authority's key.
absl::Status AddCerts(const CertsOptions& options);

// Adds the certificate in the folder `revoke` to the list `revoked` (transport/tls/revocations.h). NOT_FOUND: no
// such folder.
absl::Status Revoke(const CertsOptions& options);

// Checks that the certificate in `folder` is valid now and names `host`, unless the cluster's are for any host; else
// FAILED_PRECONDITION.
absl::Status CheckCertificate(const std::string& folder, const std::string& host);

// Whether the certificates of the folder's cluster are for any host (transport/tls/any_host.h). False
// for no folder. Errors: those of ReadPrivateFile.
absl::StatusOr<bool> IsForAnyHost(const std::string& folder);

// Runs the subcommand; returns the exit status.
int Certs(const CertsOptions& options);

}  // namespace gangway::cli

#endif  // GANGWAY_CLI_CERTS_H_
