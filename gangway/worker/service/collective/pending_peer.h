// A member of a gang's programs, which becomes known once what its devices publish can be read here, and the other way
// round. Launches wait for it on their devices' threads.
//
// Threading: any thread.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEER_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/collective/execution/peer.h"

namespace gangway::worker {

class PendingPeer {
 public:
  explicit PendingPeer(std::string name) : name_(std::move(name)) {}  // for errors

  // The first call counts.
  void Set(absl::StatusOr<std::shared_ptr<collective::Peer>> peer) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (is_set_) return;
    is_set_ = true;
    peer_ = std::move(peer);
    changed_.NotifyAll();
  }

  // Its process is gone: nothing waits for it any more.
  void SetGone() GANGWAY_EXCLUDES(mutex_) {
    Set(absl::UnavailableError(absl::StrCat(name_, ", which has members of the program, is gone")));
    MutexLock lock(mutex_);
    if (peer_.ok()) (*peer_)->SetGone();
  }

  bool has_failed() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return is_set_ && !peer_.ok();
  }

  // DEADLINE_EXCEEDED: it has not become known; the errors of Set.
  absl::StatusOr<std::shared_ptr<const collective::Peer>> Wait(Clock::time_point deadline)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return is_set_; }))
      return absl::DeadlineExceededError(
          absl::StrCat(name_, ", which has members of the program, has not been heard"));
    GANGWAY_RETURN_IF_ERROR(peer_);
    return std::shared_ptr<const collective::Peer>(*peer_);
  }

 private:
  const std::string name_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_set_ GANGWAY_GUARDED_BY(mutex_) = false;
  absl::StatusOr<std::shared_ptr<collective::Peer>> peer_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_PENDING_PEER_H_
