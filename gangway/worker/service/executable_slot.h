// The promise of a loaded executable: created when Load arrives, set by the loader thread, awaited
// by device threads. Thread-safe. Every waiter of a failed load gets the same failure, so all
// devices of a gang agree.
#ifndef GANGWAY_WORKER_SERVICE_EXECUTABLE_SLOT_H_
#define GANGWAY_WORKER_SERVICE_EXECUTABLE_SLOT_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gangway/base/clock.h"
#include "gangway/base/ids.h"
#include "gangway/base/mutex.h"
#include "gangway/base/status.h"
#include "gangway/device/device.h"
#include "gangway/wire/wire.pb.h"
#include "gangway/worker/service/device_thread.h"

namespace gangway::worker {

class ExecutableSlot {
 public:
  ExecutableSlot(std::string name, DeviceThread::Turn turn, bool has_collectives,
                 SessionId host_caller = {}, std::optional<wire::Positions> asks = {})
      : turn_(turn),
        has_collectives_(has_collectives),
        host_caller_(host_caller),
        asks_(std::move(asks)),
        name_(std::move(name)) {}

  // How its gangs enter a device.
  DeviceThread::Turn turn() const { return turn_; }
  // Of the device runtime: its members wait for one another.
  bool has_collectives() const { return has_collectives_; }
  // The session whose client the program may call; 0: it calls none.
  SessionId host_caller() const { return host_caller_; }
  // Of a program that asks for its position when it runs; null: it does not.
  const std::optional<wire::Positions>& asks() const { return asks_; }

  void Set(absl::StatusOr<std::unique_ptr<device::Executable>> executable)
      GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    executable_ = std::move(executable);
    set_ = true;
    changed_.NotifyAll();
  }

  // The result is valid as long as the slot. Errors: the load's own; DEADLINE_EXCEEDED if it is not
  // loaded by `deadline`.
  absl::StatusOr<device::Executable*> Wait(Clock::time_point deadline) GANGWAY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!set_ &&
        !changed_.WaitUntil(mutex_, deadline, [this]() GANGWAY_NO_ANALYSIS { return set_; })) {
      return absl::DeadlineExceededError(
          absl::StrCat("Program ", name_, " is still being loaded."));
    }
    GANGWAY_RETURN_IF_ERROR(executable_);
    return executable_->get();
  }

 private:
  const DeviceThread::Turn turn_;
  const bool has_collectives_;
  const SessionId host_caller_;
  const std::optional<wire::Positions> asks_;
  const std::string name_;
  Mutex mutex_;
  CondVar changed_;
  bool set_ GANGWAY_GUARDED_BY(mutex_) = false;
  absl::StatusOr<std::unique_ptr<device::Executable>> executable_ GANGWAY_GUARDED_BY(mutex_);
};

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_EXECUTABLE_SLOT_H_
