// Implementation of stream_admission.h.
#include "gangway/worker/service/transfer/stream_admission.h"

#include "absl/strings/str_cat.h"

#include "gangway/transport/handshake/data_token.h"
#include "gangway/worker/service/transfer/peer_streams.h"

namespace gangway::worker {

bool StreamAdmission::Admit(SessionId session) {
  return isolated_ && !ended_.Contains(session) && admitted_.insert(session).second;
}

void StreamAdmission::End(SessionId session) {
  ended_.Insert(session);
  admitted_.erase(session);
}

absl::Status StreamAdmission::Check(SessionId session, std::string_view token) const {
  if (!transport::IsDataToken(key_, session, token)) {
    return absl::PermissionDeniedError(
        absl::StrCat("The token does not match session ", session,
                     "; open data streams with the data token of this session's welcome."));
  }
  if (HasEnded(session))
    return absl::FailedPreconditionError(absl::StrCat("Session ", session, " has ended."));
  return absl::OkStatus();
}

absl::Status StreamAdmission::CheckPeer(std::string_view token) const {
  if (transport::IsDataToken(key_, kPeerSession, token)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "The token is not one of this cluster's workers; only they may open streams to one another.");
}

}  // namespace gangway::worker
