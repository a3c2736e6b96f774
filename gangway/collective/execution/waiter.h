// How one member of a launch waits for what other devices do, and wakes the members that wait for its own.
//
// Waits look at memory for a short time, then sleep at the other device's pulse. A wait ends with an error when the
// launch is aborted, or after its limit.
//
// Threading: the member's thread.
#ifndef GANGWAY_COLLECTIVE_EXECUTION_WAITER_H_
#define GANGWAY_COLLECTIVE_EXECUTION_WAITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "gangway/collective/execution/launch.h"
#include "gangway/collective/execution/local_device.h"
#include "gangway/collective/execution/waiting.h"

namespace gangway::collective {

class Waiter {
 public:
  Waiter(std::shared_ptr<Launch> launch, std::shared_ptr<LocalDevice> device)
      : launch_(std::move(launch)), device_(std::move(device)) {}

  Launch& launch() const { return *launch_; }
  LocalDevice& device() const { return *device_; }
  const PeerDevice& DeviceOf(uint32_t position) const { return (*launch_->devices())[position]; }
  // Whether it is a device of this worker.
  bool IsHere(const PeerDevice& device) const { return &device.peer->arena() == &device_->arena(); }
  // Of the collective that runs, for errors.
  std::string CollectiveName() const { return launch_->plan().at(number_).Name(); }

  // The collective that the member runs from now on, for errors and those who ask; `round`: its calls before.
  void Begin(uint32_t number, uint32_t round) {
    number_ = number;
    round_ = round;
  }
  // Those that the member reads in a collective have come, or it has ended one. Before that, whom it awaits may not
  // have been told of the gang, and the threads that do so want the core.
  void SetMet() { has_met_ = true; }

  // Waits until `ready`, which a deed of that device makes true. On this worker only the kind of the deed is needed.
  // INVALID_ARGUMENT: the device has ended the program without it; DEADLINE_EXCEEDED: it did not come; the reason of an
  // abort.
  absl::Status Await(const PeerDevice& device, const Awaited& awaited,
                     absl::FunctionRef<bool()> ready);
  // The reason of the launch's failure, if it comes by the limit, or soon after the peer was gone.
  absl::Status AwaitReason(const PeerDevice& device, const absl::Status& otherwise);
  // The error of a launch whose source has left it: the reason, if that comes.
  absl::Status AwaitGone(uint32_t source);
  // Wakes those of `positions` that wait for this deed of this device.
  void Wake(std::span<const uint32_t> positions, Deed deed);

 private:
  absl::Status AwaitAsleep(const PeerDevice& device, const Awaited& awaited,
                           absl::FunctionRef<bool()> ready);
  absl::Status Sleep(const PeerDevice& device, Deed deed, absl::FunctionRef<bool()> ready);
  // Runs `body`, which sleeps at the device's pulse, while SleepRecord reports that. Sends the unsaid reads first.
  absl::Status Asleep(const PeerDevice& device, const std::optional<Awaited>& awaited,
                      absl::FunctionRef<absl::Status()> body);
  // Whether the device is known to have ended this launch well: what it has not done by then it never will.
  bool HasEndedWell(const PeerDevice& device) const;

  const std::shared_ptr<Launch> launch_;
  const std::shared_ptr<LocalDevice> device_;
  uint32_t number_ = 0;
  uint32_t round_ = 0;
  bool has_met_ = false;
};

}  // namespace gangway::collective

#endif  // GANGWAY_COLLECTIVE_EXECUTION_WAITER_H_
