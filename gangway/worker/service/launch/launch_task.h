// A gang: one execute on each local device of an executable, all or none.
// The first device thread that reaches it takes the verdict for all: if an argument is known to have failed, or a
// device could not execute, no further device executes and all result shards get that failure. If members wait for one
// another in the device runtime, which cannot end such a wait, the verdict holds the arguments of all devices, and once
// a device executes, so do all, whatever becomes of the slot of an argument. An error that a device reports after its
// execute was enqueued cannot stop the others; if they stand in a collective of the runtime, the gang watch finds them.
// If the collectives are Gangway's own, the first failure ends the waits of all members here, and the scheduler cancels
// the gang on its other workers.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gangway/collective/execution/member.h"
#include "gangway/worker/service/collective/collective_peers.h"
#include "gangway/worker/service/launch/executable_slot.h"
#include "gangway/worker/service/launch/node_task.h"
#include "gangway/worker/service/launch/running_gangs.h"

namespace gangway::worker {

class LaunchTask final : public NodeTask, public WatchedGang, public RunningGang {
 public:
  struct Position {
    uint32_t number = 0;  // logical
    int device = 0;
    std::vector<std::shared_ptr<store::Slot>> arguments;
    std::vector<std::shared_ptr<store::Slot>> results;
  };

  // What a gang needs whose collectives are Gangway's own.
  struct Collectives {
    std::shared_ptr<PromisedPlaces> places;  // null: the gang has none of its own
    std::vector<std::shared_ptr<collective::LocalDevice>>
        devices;  // by position; null: none could be made
  };

  LaunchTask(std::shared_ptr<const TaskEnvironment> environment, const PrepareLaunch& launch,
             std::shared_ptr<ExecutableSlot> executable, std::vector<Position> positions,
             Collectives collectives);

  void Enqueue() override;
  bool RunHere(ShortLaunches& launches) override;
  // Both matter to a gang whose collectives are Gangway's own: all workers run these in one order.
  void SetOrderPosition(OrderPosition position) override { order_position_ = position; }
  void Skip(OrderPosition position) const override;
  // Fails the gang, and ends the waits of its members for others, if its collectives are Gangway's own, and for its
  // client.
  void Cancel(const wire::Failure& failure) override GANGWAY_EXCLUDES(launch_mutex_);

  // WatchedGang.
  std::vector<int> Standing() const override;
  wire::Failure DescribeStanding(const std::vector<int>& standing,
                                 std::chrono::milliseconds duration) const override;
  // RunningGang.
  std::vector<wire::GangMember> Members() const override;

 private:
  using Buffers = std::vector<std::unique_ptr<device::Buffer>>;

  // Of a position whose execute is in progress: how many executes had begun before it on its device.
  struct Member {
    static constexpr uint64_t kOutside = UINT64_MAX;
    std::atomic<uint64_t> begun_before = kOutside;
  };

  // How far a position of a gang with collectives of Gangway's own has come.
  using Stage = wire::GangMember::Stage;
  struct Progress {
    std::atomic<Stage> stage = wire::GangMember::STAGE_QUEUED;
    std::atomic<uint64_t> begun_before = 0;  // of STAGE_ENQUEUED, as in Member
  };
  void SetStage(const Position& position, Stage stage) {
    if (!progress_.empty()) progress_[IndexOf(position)].stage = stage;
  }
  // Before the call of the device runtime, which may run the whole program, and after it.
  void NoteCall(const Position& position);
  void NoteReturn(const Position& position);

  // The host callbacks of one position. A failed callback of a gang with collectives lets its program go on, with zeros
  // for its results: the other members would wait for this one in a collective, and only the end of the process ends
  // such a wait. The gang's results are failed once the program has ended.
  class HostCaller;
  // A copy of an argument of a program that calls its client, which is filled only after the program is enqueued. XLA
  // CPU runs a small program whose arguments are ready inside ExecuteOn, and there the device's thread would wait for
  // the client; now another thread does.
  struct LateArgument {
    std::shared_ptr<device::Buffer> original;
    device::Placeholder placeholder;
    size_t bytes = 0;
  };
  // Replaces the smallest argument that is not donated. Nothing: it is not small, or there is none.
  std::optional<LateArgument> MakeLate(const Position& position,
                                       const std::vector<store::Content>& contents,
                                       std::vector<device::Buffer*>& arguments) const;
  void FillLate(LateArgument late);
  // What a position has made, until its program has ended.
  struct Late {
    bool ended = false;
    std::optional<Buffers> outputs;
  };

  // Whether it reaches the runtime in its turn among such gangs (arrival_order.h).
  bool takes_turn() const {
    return executable_->waits_in_runtime() && environment().arrivals != nullptr;
  }
  const std::shared_ptr<InFlight>& host_callers(const Position& position) const {
    return environment().host_callers[position.device];
  }
  bool has_own_collectives() const { return collectives_.places != nullptr; }
  void OnEnded() override {
    if (has_own_collectives()) environment().running->Remove(ordinal());
  }
  bool HasWorkBehind() const override;
  bool calls_host() const { return executable_->host_caller() != SessionId(); }
  bool IsLate() const { return calls_host() && executable_->waits_in_runtime(); }
  absl::Status Unwanted() const;  // the node's failure, else OK
  // The launch of a gang whose collectives are Gangway's own, made by the first position that asks.
  absl::StatusOr<std::shared_ptr<collective::Launch>> CollectiveLaunch(Clock::time_point deadline)
      GANGWAY_EXCLUDES(launch_mutex_);
  void AbortCollectives(const absl::Status& why) GANGWAY_EXCLUDES(launch_mutex_);
  // The end of a position whose execution ended with `status`; the reason of the launch's abort takes precedence.
  absl::Status EndOf(const absl::Status& status) GANGWAY_EXCLUDES(launch_mutex_);
  // How a runtime without FFI handlers calls the position's collectives; empty: it has handlers, or there are none.
  absl::StatusOr<device::CollectiveCall> JoinCollectives(const Position& position,
                                                         Clock::time_point deadline);
  void LeaveCollectives(const Position& position, const absl::Status& status);
  // Moves to the heap those of its arguments that members on other workers could not read in place
  // (borrowed_memory.h).
  void MoveArguments(const Position& position) GANGWAY_EXCLUDES(launch_mutex_);
  // Of a late position: the outputs are known, or the program has ended. After both, its results are settled.
  void SettleLate(Position& position, std::optional<Buffers> outputs) GANGWAY_EXCLUDES(late_mutex_);
  // To a program that asks where it runs, until EndCalls.
  void TellPosition(const Position& position) const;
  void EndCalls(const Position& position);
  // A member will never reach its collectives. Ends the waits of this worker's other members and tells the scheduler.
  void FailMember(int device, const absl::Status& why);
  void NoteFailedMember(int device);
  size_t IndexOf(const Position& position) const {
    return static_cast<size_t>(&position - positions_.data());
  }
  // The last gang that was alone in the device and from which the position's results come, apart from this one.
  Ordinal NoteFollows(const Position& position) const;
  // Whether a thread that executes it, on idle devices, waits for nothing.
  bool IsReady() const;
  void RunPosition(Position& position, const absl::Status& entry);
  absl::Status Execute(Position& position);
  void OnExecuted(Position& position, const absl::Status& executed);
  void LeaveDevice(
      int device);  // once per position that entered: its run has ended, or will not begin
  // On an error the enqueued execute still ends through its callback.
  void TakeOutputs(Position& position, Buffers outputs);
  // Whether the gang may run, as far as the first position that asks can see. If its members wait for one another in
  // the runtime, that one waits for the arguments of all.
  absl::Status Verdict(Clock::time_point deadline) GANGWAY_EXCLUDES(verdict_mutex_);
  absl::Status HoldArguments(Clock::time_point deadline) GANGWAY_REQUIRES(verdict_mutex_);
  // Of a gang that may run; of one that is committed also those whose slots have failed since.
  absl::StatusOr<std::vector<store::Content>> Arguments(const Position& position,
                                                        Clock::time_point deadline)
      GANGWAY_EXCLUDES(verdict_mutex_);
  void FailResults(const wire::Failure& failure);

  const std::shared_ptr<ExecutableSlot> executable_;
  std::vector<Position> positions_;          // each used by one thread; the slots by all
  std::vector<bool> donated_;                // by argument
  std::vector<std::atomic<bool>> executed_;  // by position
  const uint32_t launch_id_;
  const uint32_t callback_depth_;
  std::vector<Member> members_;          // by position; of a gang with collectives of the runtime
  std::atomic<int> failed_device_ = -1;  // of the first member that failed
  Mutex late_mutex_;
  std::vector<Late> late_ GANGWAY_GUARDED_BY(late_mutex_);  // by position, if IsLate()
  const Collectives collectives_;
  std::vector<Progress> progress_;  // by position; of a gang with collectives of Gangway's own
  OrderPosition order_position_;
  std::atomic<bool> is_told_ = false;  // whether the scheduler has been told of the failure
  Mutex launch_mutex_;
  std::shared_ptr<collective::Launch> launch_ GANGWAY_GUARDED_BY(launch_mutex_);
  size_t ended_well_ GANGWAY_GUARDED_BY(launch_mutex_) = 0;  // positions
  Mutex verdict_mutex_;
  bool verdict_taken_ GANGWAY_GUARDED_BY(verdict_mutex_) = false;
  // Of a gang whose members wait for one another in the runtime: a member will execute, and so all others must. They
  // have held their arguments since the verdict, by position.
  bool is_committed_ GANGWAY_GUARDED_BY(verdict_mutex_) = false;
  std::vector<std::vector<store::Content>> held_ GANGWAY_GUARDED_BY(verdict_mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_LAUNCH_TASK_H_
