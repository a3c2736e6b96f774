// How much each worker has been sent of puts that have not ended there, by all sessions (TM-2): their bytes are in the
// queue of its link until it reads them, and a link with too long a queue is closed. A worker with more than the limit
// is full, and stays so until half of that has ended: the look for what may go on then pays for itself.
//
// Counted by cost (wire/put_limits.h). Indices of workers must be in range. Pure data; not thread-safe.
#ifndef GANGWAY_SCHEDULER_CORE_PUT_ROOM_H_
#define GANGWAY_SCHEDULER_CORE_PUT_ROOM_H_

#include <cstdint>
#include <vector>

#include "gangway/base/check.h"

namespace gangway::scheduler {

class PutRoom {
 public:
  PutRoom(uint32_t worker_count, uint64_t cost_max) : cost_max_(cost_max), workers_(worker_count) {}

  bool IsFull(uint32_t worker) const { return workers_[worker].full; }
  // A put may exceed the limit: the last one before the worker is full.
  void Take(uint32_t worker, uint64_t cost) {
    Worker& sent = workers_[worker];
    sent.cost += cost;
    sent.full |= sent.cost > cost_max_;
  }
  // True: the worker is full no longer.
  bool Return(uint32_t worker, uint64_t cost) {
    Worker& sent = workers_[worker];
    GANGWAY_CHECK(sent.cost >= cost, "a put returns room that it has not taken");
    sent.cost -= cost;
    if (!sent.full || sent.cost > cost_max_ / 2) return false;
    sent.full = false;
    return true;
  }

 private:
  struct Worker {
    uint64_t cost = 0;
    bool full = false;
  };
  const uint64_t cost_max_;
  std::vector<Worker> workers_;
};

}  // namespace gangway::scheduler

#endif  // GANGWAY_SCHEDULER_CORE_PUT_ROOM_H_
