// Gangs that reach the device runtime in the order of their releases, whatever devices they are on. A worker needs that
// where the runtime takes programs with its own collectives one at a time, as they arrive
// (Capabilities::Collectives::take_turns): a gang that arrived before one whose results it reads, by way of another
// worker, would wait for its bytes, and the other one for it.
//
// Thread-safe. A gang waits here for earlier releases only (GS-4), so the waits end.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_ARRIVAL_ORDER_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_ARRIVAL_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <deque>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"

namespace gangway::worker {

class ArrivalOrder {
 public:
  // In the order of the releases. `members`: each calls Arrive once.
  void Add(Ordinal gang, size_t members) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (members > 0) expected_.push_back({gang, members});
  }

  // Until all gangs that were added before this one have arrived. DEADLINE_EXCEEDED: names the first that has not.
  absl::Status AwaitTurn(Ordinal gang, Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto has_turn = [this, gang]() GANGWAY_NO_ANALYSIS {
      return expected_.empty() || expected_.front().gang == gang;
    };
    if (has_turn() || changed_.WaitUntil(mutex_, deadline, has_turn)) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("Gang ", expected_.front().gang,
                     ", which comes first, has not reached the device runtime in time."));
  }

  // A member is with the runtime, or will not be.
  void Arrive(Ordinal gang) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = std::find_if(expected_.begin(), expected_.end(),
                                    [gang](const Gang& each) { return each.gang == gang; });
    if (found == expected_.end() || --found->members > 0) return;
    expected_.erase(found);
    changed_.NotifyAll();
  }

 private:
  struct Gang {
    Ordinal gang;
    size_t members = 0;  // that have not arrived
  };

  Mutex mutex_;
  CondVar changed_;
  std::deque<Gang> expected_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_ARRIVAL_ORDER_H_
