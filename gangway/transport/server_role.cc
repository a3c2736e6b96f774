// Implementation of server_role.h.
#include "gangway/transport/server_role.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gangway::transport {

absl::Status CheckControls(const Peer& peer, const std::string& address) {
  if (!absl::StartsWith(peer.certificate, "worker/") &&
      !absl::StartsWith(peer.certificate, "client/")) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "the process at ", address, " presents the certificate ", peer.certificate,
      ", which is no controller's or scheduler's: check the address, and start that process with a "
      "folder of its own (`gangway certs DIR --add NAME --role controller`)"));
}

}  // namespace gangway::transport
