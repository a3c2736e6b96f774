// Implementation of gang_collectives.h.
#include "gangway/worker/service/launch/gang_collectives.h"

#include <algorithm>
#include <utility>

#include "gangway/base/status.h"
#include "gangway/collective/execution/collective_call.h"
#include "gangway/collective/execution/member.h"

namespace gangway::worker {
namespace {

// For the memory of a gang's other workers, which they send when they learn of its program.
constexpr std::chrono::seconds kPeersMax{15};

}  // namespace

GangCollectives::GangCollectives(Parts parts, const ExecutableSlot& executable, Gang gang)
    : parts_(std::move(parts)), executable_(executable), gang_(gang) {}

void GangCollectives::Enter() const {
  for (const auto& device : parts_.devices)
    if (device != nullptr) device->Enter(order_position_.number());
}

void GangCollectives::Skip(OrderPosition position) const {
  collective::LocalDevice::Skip(parts_.devices, position.number());
}

absl::StatusOr<std::shared_ptr<collective::Launch>> GangCollectives::LaunchOf(
    Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted) {
  // Without the lock, which the event loop takes when it cancels the launch.
  GANGWAY_ASSIGN_OR_RETURN(
      auto devices, parts_.peers->Wait(std::min(deadline, Clock::now() + kPeersMax), unwanted));
  MutexLock lock(mutex_);
  if (launch_ == nullptr) {
    launch_ = collective::Launch::Begin(
        executable_.plan(), std::move(devices),
        {.order = order_position_.number(), .ordinal = gang_.ordinal.number()}, gang_.wait_limit);
  }
  // A failure that came before the launch was made did not abort it.
  if (const absl::Status failed = unwanted(); !failed.ok()) launch_->Abort(failed);
  return launch_;
}

absl::StatusOr<device::CollectiveCall> GangCollectives::Join(
    size_t member, const Seat& seat, device::Capabilities::FfiHandlers handlers,
    Clock::time_point deadline, absl::FunctionRef<absl::Status()> unwanted) {
  GANGWAY_ASSIGN_OR_RETURN(auto launch, LaunchOf(deadline, unwanted));
  auto joined = std::make_shared<collective::Member>(std::move(launch), parts_.devices[member],
                                                     seat.number, seat.device_id.number());
  if (handlers == device::Capabilities::FfiHandlers::kHostMemory) {
    collective::SetMember(static_cast<int32_t>(gang_.launch_id), seat.device, std::move(joined));
    return device::CollectiveCall();
  }
  return [joined = std::move(joined)](int64_t number, auto operands, auto results) {
    return joined->Run(number, operands, results);
  };
}

// The runtime says of an aborted collective only that a handler has failed, with its text.
absl::Status GangCollectives::EndOf(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (launch_ == nullptr) return status;
  if (launch_->is_aborted()) return launch_->reason();
  if (!status.ok()) return status;
  return ++ended_well_ == parts_.devices.size() ? launch_->End() : absl::OkStatus();
}

void GangCollectives::Leave(size_t member, int device, const absl::Status& status) const {
  using Ending = collective::LocalDevice::Ending;
  Ending ending = Ending::kEarly;
  if (status.ok()) ending = executable_.plan()->may_diverge() ? Ending::kUnread : Ending::kComplete;
  collective::SetMember(static_cast<int32_t>(gang_.launch_id), device, nullptr);
  const auto& left = parts_.devices[member];
  if (left != nullptr) left->Leave(order_position_.number(), ending);
}

void GangCollectives::Abort(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (launch_ != nullptr) launch_->Abort(why);
}

std::vector<const std::byte*> GangCollectives::OutsideHeap() const {
  MutexLock lock(mutex_);
  return launch_ == nullptr ? std::vector<const std::byte*>() : launch_->outside_heap();
}

}  // namespace gangway::worker
