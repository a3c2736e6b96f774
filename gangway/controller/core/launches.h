// The launches of registered programs. A launch applies the steps of its program in a namespace of its own, by the
// rooms that apply single operations: so each of its calls and transfers is one node (DF-1) with the next ordinal,
// which is checked, fails and ends as it would alone (ER-2), and what its steps do not keep is freed behind its last
// use (OB-1). The client names arguments and results only.
//
// A launch that is refused as a whole runs nothing, and spoils its results.
//
// A short message may launch much, and what it launches may end at once, as nodes with a spoiled input do: no limit of
// pending nodes bounds that. So the launches of one batch of operations have a limit of their own (TM-2).
//
// Keeps nothing but that between operations. Pure; not thread-safe. Stands on the rooms that it names.
#ifndef GANGWAY_CONTROLLER_CORE_LAUNCHES_H_
#define GANGWAY_CONTROLLER_CORE_LAUNCHES_H_

#include <cstdint>

#include "gangway/controller/core/calls.h"
#include "gangway/controller/core/executables.h"
#include "gangway/controller/core/fleet.h"
#include "gangway/controller/core/nodes.h"
#include "gangway/controller/core/programs.h"
#include "gangway/controller/core/session.h"
#include "gangway/controller/core/storages.h"
#include "gangway/controller/core/transfers.h"
#include "gangway/wire/failure.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::controller {

class Launches {
 public:
  // Of all launches of one batch: nodes and their inputs. A launch that lowers its program again counts as kLowerings.
  static constexpr uint64_t kBatchSizeMax = uint64_t{1} << 22;
  static constexpr uint64_t kLowerings = 8;

  // All of them outlive this.
  struct Rooms {
    Fleet& fleet;
    Storages& storages;
    const Executables& executables;
    Nodes& nodes;
    Programs& programs;
    Calls& calls;
    Transfers& transfers;
  };
  explicit Launches(const Rooms& rooms) : rooms_(rooms) {}

  // Before the operations of a batch.
  void BeginBatch() { batch_size_ = 0; }
  // No copies of the session wait (Transfers::SendCopies).
  void OnLaunch(Session& session, const wire::LaunchOp& op, Time now);

 private:
  wire::FailureRef Check(const Session& session, const wire::LaunchOp& op);
  // Binds the arguments in `scope`, and lowers the program again if they are of other types.
  wire::FailureRef BindArguments(const Session& session, const wire::LaunchOp& op, Session& scope);
  wire::FailureRef BindGathered(const Session& session, const wire::LaunchOp& op, Session& scope);
  void Apply(const ProgramStep& step, const wire::LaunchOp& op, Session& scope, Time now);
  void BindResult(Session& session, ArrayHandle result, program::ValueId value, Session& scope);

  wire::FailureRef Charge(const RegisteredProgram& program, uint64_t times);

  const Rooms rooms_;
  uint64_t batch_size_ = 0;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_LAUNCHES_H_
