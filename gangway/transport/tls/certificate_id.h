// What names a certificate: its serial number and its common name.
//
// Threading: functions without state. Failure: a status.
#ifndef GANGWAY_TRANSPORT_TLS_CERTIFICATE_ID_H_
#define GANGWAY_TRANSPORT_TLS_CERTIFICATE_ID_H_

#include <string>

#include "absl/status/statusor.h"

namespace gangway::transport {

struct CertificateId {
  std::string serial;  // hexadecimal digits
  std::string name;    // the common name
};
// INVALID_ARGUMENT: not a certificate in PEM.
absl::StatusOr<CertificateId> ReadCertificateId(const std::string& pem);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TLS_CERTIFICATE_ID_H_
