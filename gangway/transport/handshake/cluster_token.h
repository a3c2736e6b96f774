// The cluster's secret, which every process of the cluster presents in its Hello. It keeps out
// other users of the same host, who can reach loopback too.
//
// Threading: functions without state. Failure: a token that cannot be made is a failed check.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gangway::transport {

// 256 random bits, as 64 hexadecimal digits.
std::string NewClusterToken();

// UNAUTHENTICATED: `presented` is not `expected`; names `who` and says where the token is. Takes
// the same time for every wrong token of the right size. An empty `expected` matches nothing.
absl::Status CheckClusterToken(std::string_view expected, std::string_view presented,
                               std::string_view who);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_CLUSTER_TOKEN_H_
