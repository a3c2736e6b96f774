// The calls of executables: checked against what the session's arrays are, and sent to the executable's islands as one
// node (DF-1). A call that is refused spoils its own results and nothing else. What a call costs depends on its
// arguments and results, not on the devices: arguments are compared by their lists, which are interned, and results
// share the executable's list and shapes.
//
// Keeps nothing between calls. Pure; not thread-safe. Stands on the rooms that it names.
#ifndef GANGWAY_CONTROLLER_CORE_CALLS_H_
#define GANGWAY_CONTROLLER_CORE_CALLS_H_

#include <cstdint>
#include <vector>

#include "gangway/controller/core/blame.h"
#include "gangway/controller/core/executables.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/isolation.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/outbox.h"
#include "gangway/controller/core/session.h"
#include "gangway/controller/core/storages.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Calls {
 public:
  // All of them outlive this.
  struct Rooms {
    const Fleet& fleet;
    Isolation& isolation;
    Storages& storages;
    const Executables& executables;
    Nodes& nodes;
    const Blame& blame;
    Outbox& outbox;
  };
  explicit Calls(const Rooms& rooms) : rooms_(rooms) {}

  // `callback_depth`: as in wire::CallOp.
  void OnCall(Session& session, const wire::CallOp& op, uint32_t callback_depth, Time now);

 private:
  struct Arguments;  // what the call takes: arrays, and lists of shards

  wire::FailureRef Check(const Session& session, const wire::CallOp& op, uint32_t callback_depth,
                         Time now, const Executable*& executable, Arguments& arguments,
                         std::vector<uint32_t>& donated) const;
  wire::FailureRef CheckArguments(const SessionArrays& arrays, const Executable& executable,
                                  const wire::CallOp& op, Arguments& arguments) const;
  wire::FailureRef CheckLaunch(const Executable& executable, uint32_t callback_depth,
                               Time now) const;
  void Launch(Session& session, const wire::CallOp& op, uint32_t callback_depth,
              const Executable& executable, const Arguments& arguments,
              const std::vector<uint32_t>& donated, Time now);

  const Rooms rooms_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_CALLS_H_
