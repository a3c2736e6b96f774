// Since when nodes have waited for what has a deadline (TM-1): for memory, for the next byte of an upload, for a worker
// that is down. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_WAITS_H_
#define GANGWAY_SCHEDULER_CORE_WAITS_H_

#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "gangway/base/ids.h"
#include "gangway/scheduler/core/events.h"

namespace gangway::scheduler {

enum class WaitFor { kMemory, kBytes, kWorkers };

class Waits {
 public:
  explicit Waits(const IslandConfig& config);

  // Does nothing if the node waits for it already.
  void Begin(WaitFor what, Ordinal ordinal, Time now);
  // As if the node began to wait now. Does nothing if it does not wait.
  void Restart(WaitFor what, Ordinal ordinal, Time now);
  // False: it did not wait for it.
  bool End(WaitFor what, Ordinal ordinal);

  // nullopt: it does not wait for it.
  std::optional<Time> Since(WaitFor what, Ordinal ordinal) const;
  std::chrono::milliseconds limit(WaitFor what) const { return Of(what).limit; }

  // Those that have waited as long as they may, the longest first. Their waits go on.
  std::vector<Ordinal> Due(WaitFor what, Time now) const;
  std::optional<Time> next_deadline() const;

 private:
  struct Kind {
    std::chrono::milliseconds limit;
    absl::flat_hash_map<Ordinal, Time> since;
    std::set<std::pair<Time, Ordinal>> by_time;  // the same
  };

  Kind& Of(WaitFor what) { return kinds_[static_cast<size_t>(what)]; }
  const Kind& Of(WaitFor what) const { return kinds_[static_cast<size_t>(what)]; }

  std::array<Kind, 3> kinds_;  // by WaitFor
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_WAITS_H_
