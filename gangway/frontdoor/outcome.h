// The outcome of something that a session waits for: a status that is set once, on any thread, and read or awaited by
// any number of others. Shared with the callback of the client library that sets it.
//
// An operation's end is told late while nothing looks for it (Client::LookFor): the first question about an outcome
// that such an end sets looks for it.
//
// Threading: thread-safe. Callbacks run on the thread that sets the outcome, or at once on the caller's; no lock is
// held while they run. While a thread waits, it may run the client's callbacks (gangway::Wait): it must hold no lock
// that one of these takes.
#ifndef GANGWAY_FRONTDOOR_OUTCOME_H_
#define GANGWAY_FRONTDOOR_OUTCOME_H_

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/client/client.h"

namespace gangway {

class Outcome {
 public:
  // Of a subscription: whether it looks for the end.
  enum class Wanted { kAtOnce, kLate };

  Outcome() = default;
  // One that a callback of `client` sets, at the latest when the client ends.
  explicit Outcome(Client* client) : client_(client) {}

  // The callback is the end of this operation. Before anything can ask about the outcome; it may be set already.
  void SetOperation(OperationId operation) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    unlooked_ = operation;
  }

  // The first one counts. Threads that wait go on before the callbacks run, which may take locks that they hold.
  void Set(const absl::Status& status) GANGWAY_EXCLUDES(mutex_) {
    std::vector<StatusCallback> waiting;
    std::vector<std::shared_ptr<gangway::Wait>> waits;
    {
      MutexLock lock(mutex_);
      if (status_) return;
      status_ = status;
      waiting.swap(waiting_);
      waits.swap(waits_);
      set_.NotifyAll();
    }
    for (const auto& wait : waits) wait->End();
    for (StatusCallback& then : waiting) then(status);
  }

  // Calls `then` once, now or when the outcome is set. `then` may drop the last owner of the outcome.
  void Then(StatusCallback then, Wanted wanted = Wanted::kAtOnce) GANGWAY_EXCLUDES(mutex_) {
    std::optional<absl::Status> status;
    Client* const client = client_;
    std::optional<OperationId> unlooked;
    {
      MutexLock lock(mutex_);
      status = status_;
      if (!status) waiting_.push_back(std::exchange(then, nullptr));
      if (!status && wanted == Wanted::kAtOnce) unlooked.swap(unlooked_);
    }
    if (status) return then(*status);
    if (unlooked) client->LookFor(*unlooked);
  }

  // Null: not yet.
  std::optional<absl::Status> Peek() GANGWAY_EXCLUDES(mutex_) {
    std::optional<OperationId> unlooked;
    {
      MutexLock lock(mutex_);
      if (status_ || !unlooked_) return status_;
      unlooked.swap(unlooked_);
    }
    client_->LookFor(*unlooked);
    return std::nullopt;
  }

  // Waits without a limit of its own: the client library answers all that it is asked, or loses its session.
  absl::Status Wait() GANGWAY_EXCLUDES(mutex_) {
    std::optional<absl::Status> status;
    while (!status) status = WaitFor(std::chrono::hours(1));
    return *status;
  }

  // Null: not within `limit`.
  std::optional<absl::Status> WaitFor(std::chrono::milliseconds limit) GANGWAY_EXCLUDES(mutex_) {
    const auto deadline = Clock::now() + limit;
    if (client_ != nullptr && !Peek()) {
      client_->SendNow();  // what is waited for, if no operation sets the outcome
      const std::shared_ptr<gangway::Wait> wait = client_->NewWait();
      {
        MutexLock lock(mutex_);
        if (status_) return status_;
        waits_.push_back(wait);
      }
      wait->For(limit);
      MutexLock lock(mutex_);
      std::erase(waits_, wait);
    }
    MutexLock lock(mutex_);
    set_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return status_.has_value(); });
    return status_;
  }

 private:
  Client* const client_ = nullptr;
  mutable Mutex mutex_;
  CondVar set_;
  std::optional<absl::Status> status_ GANGWAY_GUARDED_BY(mutex_);
  // The operation whose end sets it, until something looks for that.
  std::optional<OperationId> unlooked_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<StatusCallback> waiting_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<gangway::Wait>> waits_ GANGWAY_GUARDED_BY(mutex_);  // of WaitFor
};

}  // namespace gangway

#endif  // GANGWAY_FRONTDOOR_OUTCOME_H_
