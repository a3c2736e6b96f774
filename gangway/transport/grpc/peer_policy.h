// PeerPolicy: decides by their certificates which peers may have links over gRPC, also while the
// links are open.
//
// Threading: thread-safe. Failure: a status that names the certificate and says what to do.
#ifndef GANGWAY_TRANSPORT_GRPC_PEER_POLICY_H_
#define GANGWAY_TRANSPORT_GRPC_PEER_POLICY_H_

#include <grpcpp/security/auth_context.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace gangway::transport {

// The certificate, in PEM, that the peer of an authenticated call presented; empty: none.
inline std::string CertificateOf(const grpc::AuthContext& context) {
  for (const grpc::string_ref& value : context.FindPropertyValues("x509_pem_cert"))
    return {value.data(), value.size()};
  return "";
}

class PeerPolicy {
 public:
  virtual ~PeerPolicy() = default;

  // The common name of the certificate (PEM). PERMISSION_DENIED: its owner may have no links.
  virtual absl::StatusOr<std::string> Check(const std::string& certificate) = 0;

  // Calls `changed`, on a thread of the policy, when an answer of Check may have changed, until
  // Unsubscribe has returned.
  virtual uint64_t Subscribe(std::function<void()> changed) = 0;
  virtual void Unsubscribe(uint64_t id) = 0;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_GRPC_PEER_POLICY_H_
