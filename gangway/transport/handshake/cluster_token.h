// The tokens of a cluster, which its processes present in their Hello. They keep out other users of
// the same host, who can reach loopback too. Each role has its own, derived from the cluster's
// secret: the HMAC-SHA-256 of the role's name. So a process that has one role's token cannot
// present another's. A listener knows Verifiers, which check tokens and cannot make them.
//
// Threading: functions without state. Failure: a token that cannot be made is a failed check.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/wire/wire.pb.h"

namespace gangway::transport {

// The roles that have a token, the client first.
inline constexpr std::array kTokenRoles = {wire::ROLE_CLIENT, wire::ROLE_WORKER,
                                           wire::ROLE_COMPILER, wire::ROLE_SCHEDULER,
                                           wire::ROLE_TOOL};

std::string RoleName(wire::Role role);  // "worker"; "role 99" if unknown

// 256 random bits, as 64 hexadecimal digits: a secret, or a token that only one process knows.
std::string NewClusterToken();

// As 64 hexadecimal digits.
std::string RoleToken(std::string_view secret, wire::Role role);

class Verifiers {
 public:
  Verifiers() = default;  // nothing matches
  static Verifiers Of(std::string_view secret);
  // One token for every role. An empty token matches nothing.
  static Verifiers Same(std::string_view token);
  // INVALID_ARGUMENT: not what ToText has written.
  static absl::StatusOr<Verifiers> FromText(std::string_view text);
  std::string ToText() const;  // a line per role

  // Whether `presented` opens `role` to `who`. UNAUTHENTICATED: it is no token of the cluster; says
  // where the tokens are. PERMISSION_DENIED: it is the token of another role; names both. Every
  // token opens ROLE_PROBE.
  absl::Status Check(wire::Role role, std::string_view presented, std::string_view who) const;

 private:
  std::map<wire::Role, std::string> digests_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_
