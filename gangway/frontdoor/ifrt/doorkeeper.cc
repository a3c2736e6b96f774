// Implementation of doorkeeper.h.
#include "gangway/frontdoor/ifrt/doorkeeper.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"

namespace gangway::ifrt {

void Doorkeeper::LookSoon() {
  MutexLock lock(mutex_);
  if (std::exchange(looking_, true)) return;
  timers_->PostAt(Clock::now() + Strangers::kLookInterval, [this] { Look(); });
}

void Doorkeeper::Look() {
  {
    MutexLock lock(mutex_);
    looking_ = false;
  }
  if (strangers_.Look()) LookSoon();
}

std::shared_ptr<Doorkeeper::Connection> Doorkeeper::Enter(const std::string& peer,
                                                          absl::Status& refused) {
  Strangers::Entry entry = strangers_.Enter(peer);
  const int limit = entry.is_stranger ? limits_.stranger_streams_max : limits_.streams_max;
  if (entry.streams <= limit) return std::move(entry.connection);
  refused = absl::ResourceExhaustedError(absl::StrCat(
      "the connection ", peer, " has ", limit, " streams, the limit of the JAX front door for one ",
      entry.is_stranger ? "that has not presented the cluster's token" : "connection",
      ": wait until some of them have ended, or use several processes"));
  return std::move(entry.connection);
}

absl::Status Doorkeeper::OpenSession(Connection& connection) {
  MutexLock lock(mutex_);
  if (sessions_ >= limits_.sessions_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the JAX front door has ", sessions_,
                     " sessions, its limit: end scripts that are done with the cluster (`gangway "
                     "status` lists the sessions), and start this one again"));
  }
  ++sessions_;
  strangers_.Admit(connection);
  return absl::OkStatus();
}

void Doorkeeper::CloseSession(Connection& connection) {
  {
    MutexLock lock(mutex_);
    --sessions_;
  }
  strangers_.Withdraw(connection);
}

bool Doorkeeper::TakeRefusal() {
  MutexLock lock(mutex_);
  if (refusals_ >= limits_.refusals_max) return false;
  ++refusals_;
  return true;
}

void Doorkeeper::ReturnRefusal() {
  MutexLock lock(mutex_);
  --refusals_;
}

}  // namespace gangway::ifrt
