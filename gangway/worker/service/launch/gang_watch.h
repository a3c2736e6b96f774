// Finds gangs with the device runtime's own collectives of which a member has failed while others stand in the device:
// they wait for that member, which never comes, until the runtime ends the process. A gang of which no member has
// failed is never one of these, however slow it is.
//
// A member stands if it has entered its device, has not ended, and all that entered before it has: then it waits for
// nothing but its gang. Gangs are noted when a member fails, which is rare; the others cost nothing here.
//
// Note: any thread. Look: one thread.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_GANG_WATCH_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_GANG_WATCH_H_

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/wire/failure.h"

namespace gangway::worker {

// A gang as the watch sees it. Thread-safe.
class WatchedGang {
 public:
  virtual ~WatchedGang() = default;
  // The devices (local indices) in which members stand.
  virtual std::vector<int> Standing() const = 0;
  // That a member failed, and that those of `standing` have stood for `duration` since.
  virtual wire::Failure DescribeStanding(const std::vector<int>& standing,
                                         std::chrono::milliseconds duration) const = 0;
};

class GangWatch {
 public:
  // A member of `gang` has failed. Once per gang.
  void Note(std::weak_ptr<const WatchedGang> gang) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    failed_.push_back({std::move(gang), {}, {}});
  }

  // The failure of a gang of which the same members have stood for `limit`, as far as the calls of this show.
  std::optional<wire::Failure> Look(Clock::time_point now, std::chrono::milliseconds limit)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::optional<wire::Failure> found;
    std::erase_if(failed_, [&](Failed& each) GANGWAY_NO_ANALYSIS {
      const std::shared_ptr<const WatchedGang> gang = each.gang.lock();
      if (gang == nullptr) return true;  // all members have ended
      std::vector<int> standing = gang->Standing();
      if (standing != each.standing) {
        each.standing = std::move(standing);
        each.since = now;
      }
      if (!each.standing.empty() && now - each.since >= limit && !found) {
        found = gang->DescribeStanding(
            each.standing, std::chrono::duration_cast<std::chrono::milliseconds>(now - each.since));
      }
      return false;
    });
    return found;
  }

 private:
  struct Failed {
    std::weak_ptr<const WatchedGang> gang;
    std::vector<int> standing;
    Clock::time_point since;  // that exactly these stand
  };

  Mutex mutex_;
  std::vector<Failed> failed_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_GANG_WATCH_H_
