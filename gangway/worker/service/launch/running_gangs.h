// The released gangs with collectives of Gangway's own, for the heartbeats: what each member of the oldest ones does.
// The scheduler finds out from that which members others wait for, and why they have not come.
//
// Add and Remove: any thread. Look: one thread, which calls it again and again; a gang's age is the time since the
// first Look that saw it.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_RUNNING_GANGS_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_RUNNING_GANGS_H_

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::worker {

// Thread-safe.
class RunningGang {
 public:
  virtual ~RunningGang() = default;
  // The device, gang and stage of each member on this worker. A member that sleeps in a collective, or waits for a host
  // callback, is one that the device's thread or the runtime has.
  virtual std::vector<wire::GangMember> Members() const = 0;
};

class RunningGangs {
 public:
  static constexpr size_t kGangsMax = 16;  // that Look names
  struct Entry {
    std::shared_ptr<const RunningGang> gang;
    std::optional<Clock::time_point> seen;
  };

  void Add(Ordinal ordinal, std::shared_ptr<const RunningGang> gang) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    gangs_[ordinal].gang = std::move(gang);
  }
  void Remove(Ordinal ordinal) GANGWAY_EXCLUDES(mutex_) {
    std::shared_ptr<const RunningGang> removed;  // destroyed without the lock
    MutexLock lock(mutex_);
    auto found = gangs_.extract(ordinal);
    if (!found.empty()) removed = std::move(found.mapped().gang);
  }
  // Those that are queued when their worker stops never end, and would keep the worker's parts alive.
  void Clear() GANGWAY_EXCLUDES(mutex_) {
    std::map<Ordinal, Entry> dropped;  // destroyed without the lock
    MutexLock lock(mutex_);
    dropped.swap(gangs_);
  }

  // The members of the oldest gangs that Look has seen for at least `age`.
  std::vector<wire::GangMember> Look(Clock::time_point now, std::chrono::milliseconds age)
      GANGWAY_EXCLUDES(mutex_) {
    std::vector<std::shared_ptr<const RunningGang>> old;
    {
      MutexLock lock(mutex_);
      for (auto& [ordinal, each] : gangs_) {
        if (!each.seen) each.seen = now;
        if (now - *each.seen >= age && old.size() < kGangsMax) old.push_back(each.gang);
      }
    }
    std::vector<wire::GangMember> all;
    for (const auto& gang : old) {
      std::vector<wire::GangMember> members = gang->Members();
      all.insert(all.end(), members.begin(), members.end());
    }
    return all;
  }

 private:
  Mutex mutex_;
  std::map<Ordinal, Entry> gangs_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_RUNNING_GANGS_H_
