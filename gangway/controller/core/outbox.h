// What a step of the controller sends, and the schedulers that it goes to.
//
// A scheduler in its own process may be lost, and its successor knows nothing. So items for an island without a
// scheduler are held here, in order: first the loads of all executables of the island, which are kept for that. Nodes
// are held until a deadline (TM-1); one that reads the result of a node that was too late fails with it, because a
// scheduler that starts now would not know that result. The schedulers of other islands are always up.
//
// Pure; not thread-safe. Knows no other part of the controller: they all send through it.
#ifndef GANGWAY_CONTROLLER_CORE_OUTBOX_H_
#define GANGWAY_CONTROLLER_CORE_OUTBOX_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/events.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Outbox {
 public:
  struct Expired {
    uint32_t island = 0;
    Ordinal ordinal;
    wire::FailureRef why;
  };

  // `remote`: the islands whose schedulers have their own processes, which are down at first.
  Outbox(uint32_t island_count, const std::set<uint32_t>& remote,
         std::chrono::milliseconds wait_max);

  // What is sent until Take() is sent at this time.
  void Begin(Time now) { now_ = now; }
  Actions Take();

  void ToClient(SessionId session, wire::SessionEvent event);
  void ToIsland(uint32_t island, wire::IslandItem item);
  void ToIslands(const std::vector<uint32_t>& islands, wire::IslandItem item);
  // Where to add frees for the island, after all that was sent to it.
  wire::Free& FreesOf(uint32_t island);
  // All that is no message to a client or an island.
  Actions& actions() { return actions_; }

  // False: the island has no scheduler of its own. What was held goes out.
  bool OnSchedulerUp(uint32_t island, uint64_t process_id);
  // False: it was not up. From now on items for the island are held.
  bool OnSchedulerDown(uint32_t island);
  // Takes nodes that were held too long, and those that read their results, out.
  std::vector<Expired> TakeExpired();
  std::optional<Time> next_deadline() const;

  uint32_t island_count() const { return static_cast<uint32_t>(islands_.size()); }
  std::string AbsentSchedulers() const;  // their names; empty: none is down
  void FillSchedulers(wire::StatusReply& reply) const;

 private:
  struct Island {
    bool remote = false;
    bool up = true;
    uint64_t process_id = 0;
    std::map<ExecutableId, wire::Load> loads;  // remote: for its next scheduler
    std::deque<wire::IslandItem> held;         // while it is down, in order; empty while it is up
    std::map<Ordinal, Time> waiting;           // nodes in `held`, since when
  };
  bool IsLate(Time since) const { return now_ >= since + wait_max_; }
  void Expire(uint32_t index, std::vector<Expired>& expired);

  const std::chrono::milliseconds wait_max_;
  std::vector<Island> islands_;
  Time now_;
  Actions actions_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_OUTBOX_H_
