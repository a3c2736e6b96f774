// The clients' questions whether arrays are ready. An await is answered once all that it names has settled, with the
// first failure in the order of its arrays. An array that is known to be spoiled waits all the same, since its node may
// still run.
//
// Pure; not thread-safe. Stands on Outbox, which gets the answers.
#ifndef GANGWAY_CONTROLLER_CORE_AWAITS_H_
#define GANGWAY_CONTROLLER_CORE_AWAITS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gangway/base/ids.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/session_arrays.h"
#include "gangway/controller/core/storages.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Awaits {
 public:
  explicit Awaits(Outbox& outbox) : outbox_(outbox) {}  // which outlives this

  // `arrays` are those of the session, in `storages`.
  void OnAwait(SessionId session, const wire::AwaitOp& op, const SessionArrays& arrays,
               Storages& storages);
  // Ignores awaits of sessions that have closed.
  void OnSettled(const std::vector<Storages::Settled>& settled);
  void Close(SessionId session);

 private:
  using Key = std::pair<SessionId, AwaitId>;
  struct State {
    uint32_t unsettled = 0;
    wire::FailureRef failure;    // the first of the known ones, in the order of the arrays
    uint32_t failure_index = 0;  // its index in that order
    void Note(uint32_t index, const wire::FailureRef& what);
  };
  void Finish(std::map<Key, State>::iterator await);

  Outbox& outbox_;
  std::map<Key, State> awaits_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_AWAITS_H_
