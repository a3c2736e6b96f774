// The device-side work of one node, split into parts that end independently. Created on the event
// loop when the node arrives (DF-2); Enqueue posts the parts to the device threads, unless RunHere
// has done the work; the last part to end reports NodeEnded. Closures share ownership of their task,
// so it may be destroyed on any thread.
#ifndef GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_H_
#define GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gangway/base/clock.h"
#include "gangway/base/mutex.h"
#include "gangway/device/device.h"
#include "gangway/store/slot.h"
#include "gangway/worker/core/actions.h"
#include "gangway/worker/core/worker_core.h"
#include "gangway/worker/service/device/arrival_order.h"
#include "gangway/worker/service/device/device_thread.h"
#include "gangway/worker/service/device/in_flight.h"
#include "gangway/worker/service/device/short_launches.h"
#include "gangway/worker/service/device/spare_threads.h"

namespace gangway::worker {

// Of the folders above this one, for the tasks that use them.
class GangWatch;
class HostCalls;
class RunningGangs;
class StagingMemory;

// What tasks need from the worker; constant during their life.
struct TaskEnvironment {
  Identity identity;
  std::vector<std::shared_ptr<DeviceThread>> devices;
  std::vector<DeviceId> device_ids;  // by local index
  // On any thread. `hurries`: as in LateEnds.
  std::function<void(NodeEnded, bool hurries)> ended;
  std::function<void(MemberFailed)> member_failed;
  std::shared_ptr<InFlight> callbacks;  // counts those that the runtime still owes
  std::shared_ptr<ArrivalOrder>
      arrivals;                      // of gangs that take turns in the runtime; null: they do not
  std::shared_ptr<GangWatch> gangs;  // learns of failed members; null: nothing does
  std::shared_ptr<RunningGangs> running;
  // By device: runs of programs that call their clients. Each may block a thread of the runtime's pool for long.
  std::vector<std::shared_ptr<InFlight>> host_callers;
  std::shared_ptr<SpareThreads> spare_threads;  // for them
  device::Backend* backend = nullptr;
  std::shared_ptr<StagingMemory> staging;  // counts copies of arguments while they are made
  std::shared_ptr<HostCalls> host_calls;   // of programs that call their clients; null: none may
  std::chrono::milliseconds wait_limit{
      600'000};  // for a slot, an executable, the in-flight limit, the gate
};

// Counts as one callback that the runtime owes, for as long as it lives.
class OwedCallback {
 public:
  explicit OwedCallback(std::shared_ptr<InFlight> callbacks) : callbacks_(std::move(callbacks)) {
    callbacks_->Add();
  }
  OwedCallback(const OwedCallback& other) : OwedCallback(other.callbacks_) {}
  OwedCallback(OwedCallback&& other) noexcept = default;
  OwedCallback& operator=(const OwedCallback&) = delete;
  ~OwedCallback() {
    if (callbacks_ != nullptr) callbacks_->End();
  }

 private:
  std::shared_ptr<InFlight> callbacks_;  // null: moved from
};

// Wraps `callback`: it counts as owed by the runtime until it and its captures are destroyed, also if the runtime drops
// it unused.
template <typename Callback>
device::StatusCallback CountOwed(const std::shared_ptr<InFlight>& callbacks, Callback callback) {
  // The count is captured first, so it is destroyed last, after the callback's own captures.
  return [owed = OwedCallback(callbacks), callback = std::move(callback)](absl::Status status) {
    callback(std::move(status));
  };
}

// Fails a shard, then rechecks the tasks at its device's gate: a fetch or a copy may wait there for it.
void FailSlot(const TaskEnvironment& environment, store::Slot& slot, const wire::Failure& why);

class NodeTask : public std::enable_shared_from_this<NodeTask> {
 public:
  NodeTask(std::shared_ptr<const TaskEnvironment> environment, Ordinal ordinal,
           wire::ProgramLabelRef program, size_t parts);
  virtual ~NodeTask() = default;
  NodeTask(const NodeTask&) = delete;
  NodeTask& operator=(const NodeTask&) = delete;

  // Called once, on the event loop, in the order of the releases.
  virtual void Enqueue() = 0;
  // Before Enqueue and RunHere: where its release comes in the island's order.
  virtual void SetOrderPosition(OrderPosition /*position*/) {}
  // It will not run here: its release came there.
  virtual void Skip(OrderPosition /*position*/) const {}
  // Before Enqueue: the workers that send what it receives.
  virtual void NamePeers(std::vector<WorkerRef>&& /*workers*/) {}
  // After Enqueue: ends what it waits for in other processes. On the event loop.
  virtual void Cancel(const wire::Failure& /*why*/) {}
  // Instead of Enqueue: does the work on the calling thread, if it is short, waits for nothing and overtakes nothing.
  // False: nothing was done.
  [[nodiscard]] virtual bool RunHere(ShortLaunches& /*launches*/) { return false; }

  // For what takes part in the node's work. Keeps the first failure. `device`: where `error` occurred. Any thread.
  void Note(const absl::Status& error, int device) GANGWAY_EXCLUDES(mutex_);
  std::optional<wire::Failure> failure() const GANGWAY_EXCLUDES(mutex_);
  // Why nothing that the node makes is wanted any more: its failure. OK: it has none.
  absl::Status Unwanted() const GANGWAY_EXCLUDES(mutex_);

 protected:
  const TaskEnvironment& environment() const { return *environment_; }
  const std::shared_ptr<const TaskEnvironment>& environment_ptr() const { return environment_; }
  Ordinal ordinal() const { return ordinal_; }
  const wire::ProgramLabelRef& program() const { return program_; }
  Clock::time_point Deadline() const { return Clock::now() + environment_->wait_limit; }

  DeviceId DeviceIdOf(int local) const {
    const auto& ids = environment_->device_ids;
    return static_cast<size_t>(local) < ids.size() ? ids[local] : DeviceId(local);
  }

  // A callback that counts as owed by the runtime and keeps the task alive.
  template <typename Callback>
  device::StatusCallback Owed(Callback callback) {
    return CountOwed(environment_->callbacks,
                     [self = shared_from_this(), callback = std::move(callback)](
                         absl::Status status) { callback(std::move(status)); });
  }

  // A failure record of `error` on local device `device`; a record that the status already carries
  // is kept as it is.
  wire::Failure Describe(const absl::Status& error, int device) const;

  void NoteUnsent(uint32_t shard) GANGWAY_EXCLUDES(mutex_);

  // Of all these devices, or of none (DeviceThread::Borrow).
  [[nodiscard]] bool BorrowDevices(const std::vector<int>& devices) const;

  void EndPart() GANGWAY_EXCLUDES(mutex_);
  // The last part has ended; NodeEnded follows.
  virtual void OnEnded() {}
  // Then: whether its devices have enough to do while the scheduler does not know of this end.
  virtual bool HasWorkBehind() const { return false; }

  // Puts a result of this node into `slot`. The part that made it ends when the slot is filled and
  // the buffer is ready or has failed.
  void Deliver(store::Slot& slot, store::Content content) GANGWAY_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<const TaskEnvironment> environment_;
  const Ordinal ordinal_;
  const wire::ProgramLabelRef program_;
  mutable Mutex mutex_;
  size_t parts_left_ GANGWAY_GUARDED_BY(mutex_);
  std::optional<wire::Failure> failure_ GANGWAY_GUARDED_BY(mutex_);
  std::vector<uint32_t> unsent_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_DEVICE_NODE_TASK_H_
