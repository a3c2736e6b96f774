// Implementation of cluster_token.h.
#include "gangway/transport/handshake/cluster_token.h"

#include <openssl/crypto.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gangway/transport/handshake/data_token.h"

namespace gangway::transport {

std::string NewClusterToken() { return absl::BytesToHexString(NewDataKey()); }

absl::Status CheckClusterToken(std::string_view expected, std::string_view presented,
                               std::string_view who) {
  if (!expected.empty() && presented.size() == expected.size() &&
      CRYPTO_memcmp(presented.data(), expected.data(), expected.size()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat(
      std::string(who), presented.empty() ? " presented no token" : " presented a wrong token",
      ": the cluster accepts its own token only. That is the file `token` in the cluster's state "
      "folder (--state-dir or GANGWAY_STATE_DIR, as given to `gangway up`) and in the folder that "
      "`gangway certs` made (--tls): use the same folder as the cluster."));
}

}  // namespace gangway::transport
