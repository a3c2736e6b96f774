// Clusters whose hosts are not known when their certificates are made, since a workload manager chooses them. The
// authority of such a cluster says so in its own common name, and each certificate that it issues to a process which
// serves others has one fixed name. Peers that trust this authority expect that name at every address. So a certificate
// proves that its owner belongs to the cluster, and in which role, but not which host it is.
//
// Threading: functions without state. Failure: a malformed certificate is not for any host.
#ifndef GANGWAY_TRANSPORT_TLS_ANY_HOST_H_
#define GANGWAY_TRANSPORT_TLS_ANY_HOST_H_

#include <string>

#include "gangway/transport/tls/certificate_id.h"

namespace gangway::transport {

inline constexpr char kAnyHostAuthority[] = "Gangway cluster authority for any host";
inline constexpr char kAnyHostName[] = "any-host.gangway.internal";

// `authority`: its certificate, in PEM.
inline bool IsForAnyHost(const std::string& authority) {
  const auto id = ReadCertificateId(authority);
  return id.ok() && id->name == kAnyHostAuthority;
}

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_TLS_ANY_HOST_H_
