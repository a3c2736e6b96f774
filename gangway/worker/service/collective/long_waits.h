// Tells the scheduler which members of a gang wait for which others, once one of them has waited for long, and asks
// members whether they still wait. The scheduler finds out from that whether a gang can never end.
//
// Threading: the event loop owns this, apart from Tell; the answers come on members' threads.
#ifndef GANGWAY_WORKER_SERVICE_COLLECTIVE_LONG_WAITS_H_
#define GANGWAY_WORKER_SERVICE_COLLECTIVE_LONG_WAITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "gangway/base/executor.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/collective/collective_peers.h"

namespace gangway::worker {

class LongWaits {
 public:
  using TellScheduler = std::function<void(wire::Report)>;

  // `peers` outlives this. `tell` gets what the scheduler is to be told, on the loop.
  LongWaits(const CollectivePeers* peers, std::shared_ptr<EventLoop> loop, TellScheduler tell);

  // A member of the gang has waited for long. Reports the waits of all its members here that were not reported before.
  // Any thread.
  void Tell(uint64_t gang);
  // Asks the members. Each of those for which the answer is yes is reported; questions that do not fit are ignored.
  void Check(const wire::WaitCheck& check) const;

 private:
  void Report(uint64_t gang);

  const CollectivePeers* const peers_;
  const std::shared_ptr<EventLoop> loop_;
  const TellScheduler tell_;
  std::map<int, uint64_t> told_;  // by device: the last wait that was reported
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_COLLECTIVE_LONG_WAITS_H_
