// StreamAdmission: whose data streams a worker takes. A client proves its session with that session's data token, and
// another worker proves with the workers' token that it belongs to the cluster (OB-3). A token stays right after its
// session has ended, so ended sessions are remembered. A worker that is isolated takes a session's streams only once
// its scheduler has admitted the session.
//
// Holds the key and numbers of sessions, and no stream: the owner keeps what comes too early. Threading: one thread at
// a time.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_ADMISSION_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_ADMISSION_H_

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/ids.h"
#include "gangway/wire/ended_sessions.h"

namespace gangway::worker {

class StreamAdmission {
 public:
  // Tokens can be checked from SetKey on.
  void SetKey(std::string key) { key_ = std::move(key); }
  bool has_key() const { return !key_.empty(); }

  // From now on, sessions wait until they are admitted.
  void Isolate() { isolated_ = true; }
  // True: the session's streams need not wait any longer. False: it has ended, or nothing has changed.
  bool Admit(SessionId session);
  bool IsAdmitted(SessionId session) const { return !isolated_ || admitted_.contains(session); }

  // These have ended before this worker started.
  void SetEnded(const wire::EndedSessions::Runs& sessions) { ended_.Insert(sessions); }
  void End(SessionId session);
  bool HasEnded(SessionId session) const { return ended_.Contains(session); }

  // PERMISSION_DENIED: this is not the session's token. FAILED_PRECONDITION: the session has ended.
  absl::Status Check(SessionId session, std::string_view token) const;
  // PERMISSION_DENIED: this is not the token of the cluster's workers.
  absl::Status CheckPeer(std::string_view token) const;

 private:
  std::string key_;
  bool isolated_ = false;
  std::set<SessionId> admitted_;  // if isolated
  wire::EndedSessions ended_;
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_STREAM_ADMISSION_H_
