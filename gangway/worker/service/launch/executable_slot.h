// The promise of a loaded executable: created when Load arrives, set by the loader thread, awaited
// by device threads. Thread-safe. Every waiter of a failed load gets the same failure, so all
// devices of a gang agree.
#ifndef GANGWAY_WORKER_SERVICE_LAUNCH_EXECUTABLE_SLOT_H_
#define GANGWAY_WORKER_SERVICE_LAUNCH_EXECUTABLE_SLOT_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/collective/execution/plan.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/device/device_thread.h"
#include "gangway/worker/service/device/short_launches.h"

namespace gangway::worker {

class ExecutableSlot {
 public:
  struct Traits {
    std::string name;
    DeviceThread::Turn turn = DeviceThread::Turn::kGang;  // how its gangs enter a device
    bool has_collectives = false;                         // its members wait for one another
    SessionId host_caller;  // the session whose client the program may call; 0: it calls none
    std::optional<wire::Positions> asks;  // of a program that asks for its position when it runs
    // Of a program whose collectives are Gangway's own, else null; and where its positions run.
    std::shared_ptr<const collective::Plan> plan;
    std::vector<DeviceId> position_devices;
    bool may_run_on_loop =
        false;  // if it is short: it waits for nothing, and its time does not depend on its data
  };
  explicit ExecutableSlot(Traits traits) : traits_(std::move(traits)) {}

  DeviceThread::Turn turn() const { return traits_.turn; }
  // Members wait for one another in the device runtime, which cannot end such a wait.
  bool waits_in_runtime() const { return traits_.has_collectives && traits_.plan == nullptr; }
  SessionId host_caller() const { return traits_.host_caller; }
  const std::optional<wire::Positions>& asks() const { return traits_.asks; }
  const std::shared_ptr<const collective::Plan>& plan() const { return traits_.plan; }
  const std::vector<DeviceId>& position_devices() const { return traits_.position_devices; }
  bool may_run_on_loop() const { return traits_.may_run_on_loop; }
  LearnedTime& time() { return time_; }

  void Set(absl::StatusOr<std::unique_ptr<device::Executable>> executable)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    executable_ = std::move(executable);
    set_ = true;
    changed_.NotifyAll();
  }

  // Whether Wait returns at once.
  bool is_set() const GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return set_;
  }

  // The result is valid as long as the slot. Errors: the load's own; DEADLINE_EXCEEDED if it is not
  // loaded by `deadline`.
  absl::StatusOr<device::Executable*> Wait(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!set_ &&
        !changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return set_; })) {
      return absl::DeadlineExceededError(
          absl::StrCat("Program ", traits_.name, " is still being loaded."));
    }
    GANGWAY_RETURN_IF_ERROR(executable_);
    return executable_->get();
  }

 private:
  const Traits traits_;
  LearnedTime time_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool set_ GANGWAY_GUARDED_BY(mutex_) = false;
  absl::StatusOr<std::unique_ptr<device::Executable>> executable_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_LAUNCH_EXECUTABLE_SLOT_H_
