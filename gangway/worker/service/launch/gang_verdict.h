// Whether a gang runs, decided once for all its positions on this worker. The first position that asks takes the
// verdict: if an argument is known to have failed, none runs. If members wait for one another in the device runtime,
// which cannot end such a wait, that position also waits for the arguments of all and holds them. Once one position of
// such a gang has got its arguments, the gang is committed: all positions run, whatever becomes of the slots.
//
// A failure is noted at the task, and so is the task's earlier failure an answer here (ER-1).
//
// Threading: any thread. A position that asks while another one waits for the arguments of all waits, too.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_GANG_VERDICT_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_GANG_VERDICT_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/store/slot.h"
#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/launch/local_position.h"

namespace gangway::worker {

class GangVerdict {
 public:
  // `task` and `positions`: the gang's; both outlive this.
  GangVerdict(NodeTask& task, std::span<const LocalPosition> positions, bool waits_in_runtime)
      : task_(task), positions_(positions), waits_in_runtime_(waits_in_runtime) {}

  // The errors are those of the task and of its arguments, and DEADLINE_EXCEEDED for an argument that is not settled in
  // time.
  absl::Status Take(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_);
  // What the slots of a position's arguments hold, after Take let the gang run. Of a committed gang, an argument whose
  // slot has failed since the verdict counts as shared: another slot may have its buffer as well.
  absl::StatusOr<std::vector<store::Content>> Arguments(size_t position, Clock::time_point deadline)
      GANGWAY_EXCLUDES(mutex_);

 private:
  enum class State {
    kOpen,       // no position has asked
    kTaken,      // unless the task has failed, the gang may run
    kCommitted,  // it runs; only of a gang whose members wait in the runtime
  };

  absl::Status HoldArguments(Clock::time_point deadline) GANGWAY_REQUIRES(mutex_);

  NodeTask& task_;
  const std::span<const LocalPosition> positions_;
  const bool waits_in_runtime_;
  Mutex mutex_;
  State state_ GANGWAY_GUARDED_BY(mutex_) = State::kOpen;
  // Of a gang whose members wait in the runtime, by position: its arguments since the verdict.
  std::vector<std::vector<store::Content>> held_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_GANG_VERDICT_H_
