// A gang: one execute on each local device of an executable, all or none.
// The first device thread that reaches it takes the verdict for all (gang_verdict.h): if an argument is known to have
// failed, or a device could not execute, no further device executes and all result shards get that failure. If members
// wait for one another in the device runtime, which cannot end such a wait, then once a device executes, so do all. An
// error that a device reports after its execute was enqueued cannot stop the others; if they stand in a collective of
// the runtime, the gang watch finds them (runtime_members.h). If the collectives are Gangway's own, the first failure
// ends the waits of all members here (gang_collectives.h), and the scheduler cancels the gang on its other workers.
//
// Threading: the event loop makes, enqueues and cancels it; each position runs on its device's thread, or on the loop
// (RunHere), and ends on a thread of the runtime.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/worker/service/device/node_task.h"
#include "gangway/worker/service/launch/executable_slot.h"
#include "gangway/worker/service/launch/gang_collectives.h"
#include "gangway/worker/service/launch/gang_progress.h"
#include "gangway/worker/service/launch/gang_verdict.h"
#include "gangway/worker/service/launch/gang_watch.h"
#include "gangway/worker/service/launch/late_results.h"
#include "gangway/worker/service/launch/local_position.h"
#include "gangway/worker/service/launch/running_gangs.h"
#include "gangway/worker/service/launch/runtime_members.h"

namespace gangway::worker {

class LaunchTask final : public NodeTask, public WatchedGang, public RunningGang {
 public:
  using Position = LocalPosition;
  using Collectives = GangCollectives::Parts;

  LaunchTask(std::shared_ptr<const TaskEnvironment> environment, const PrepareLaunch& launch,
             std::shared_ptr<ExecutableSlot> executable, std::vector<Position> positions,
             Collectives collectives);

  void Enqueue() override;
  bool RunHere(ShortLaunches& launches) override;
  void SetOrderPosition(OrderPosition position) override {
    if (collectives_) collectives_->SetOrderPosition(position);
  }
  void Skip(OrderPosition position) const override {
    if (collectives_) collectives_->Skip(position);
  }
  // Fails the gang, and ends the waits of its members for others, if its collectives are Gangway's own, and for its
  // client.
  void Cancel(const wire::Failure& failure) override;

  // WatchedGang.
  std::vector<int> Standing() const override;
  wire::Failure DescribeStanding(const std::vector<int>& standing,
                                 std::chrono::milliseconds duration) const override;
  // RunningGang.
  std::vector<wire::GangMember> Members() const override;

 private:
  using Buffers = LateResults::Buffers;

  // Whether it reaches the runtime in its turn among such gangs (arrival_order.h).
  bool takes_turn() const {
    return executable_->waits_in_runtime() && environment().arrivals != nullptr;
  }
  const std::shared_ptr<InFlight>& host_callers(const Position& position) const {
    return environment().host_callers[position.device];
  }
  const std::shared_ptr<InFlight>& executes(const Position& position) const {
    return environment().devices[position.device]->executes();
  }
  void OnEnded() override {
    if (collectives_) environment().running->Remove(ordinal());
  }
  bool HasWorkBehind() const override;
  bool calls_host() const { return executable_->host_caller() != SessionId(); }
  size_t IndexOf(const Position& position) const {
    return static_cast<size_t>(&position - positions_.data());
  }
  // The last gang that was alone in the device and from which the position's results come, apart from this one.
  Ordinal NoteFollows(const Position& position) const;
  // Whether a thread that executes it, on idle devices, waits for nothing.
  bool IsReady() const;
  void RunPosition(Position& position, const absl::Status& entry);
  absl::Status Execute(Position& position);
  // Waits until the position may enter its device. After OK, its execute and its host caller count as begun.
  absl::Status EnterDevice(const Position& position, Clock::time_point deadline);
  // To a program that calls its client or asks where it runs, until EndCalls.
  void BeginCalls(const Position& position);
  void EndCalls(const Position& position);
  // Before the call of the device runtime, which may run the whole program, and after it.
  void NoteCall(const Position& position);
  void NoteReturn(const Position& position);
  void OnExecuted(Position& position, const absl::Status& executed);
  void LeaveDevice(
      int device);  // once per position that entered: its run has ended, or will not begin
  // On an error the enqueued execute still ends through its callback.
  void TakeOutputs(Position& position, Buffers outputs);
  void SettleLate(Position& position, std::optional<Buffers> outputs);
  // Moves to the heap those of its arguments that members on other workers could not read in place
  // (borrowed_memory.h).
  void MoveArguments(const Position& position);
  // A member will never reach its collectives. Ends the waits of this worker's other members and tells the scheduler.
  void FailMember(int device, const absl::Status& why);
  void FailResults(const wire::Failure& failure);

  const std::shared_ptr<ExecutableSlot> executable_;
  std::vector<Position> positions_;          // each used by one thread; the slots by all
  std::vector<bool> donated_;                // by argument
  std::vector<std::atomic<bool>> executed_;  // by position
  const uint32_t launch_id_;
  const uint32_t callback_depth_;
  GangVerdict verdict_;
  RuntimeMembers members_;
  GangProgress progress_;
  std::optional<GangCollectives> collectives_;  // Gangway's own
  std::optional<LateResults> late_;             // of a program that goes on after failed callbacks
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_
