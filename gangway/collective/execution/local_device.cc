// Implementation of local_device.h.
#include "gangway/collective/execution/local_device.h"

#include <atomic>
#include <vector>

namespace gangway::collective {

LocalDevice::LocalDevice(std::shared_ptr<Arena> arena, uint32_t worker, uint32_t device,
                         std::shared_ptr<const Couriers> couriers,
                         std::function<void(uint64_t gang)> on_long_wait)
    : arena_(std::move(arena)),
      number_(PeerNumber(worker, device)),
      index_(device),
      couriers_(std::move(couriers)),
      on_long_wait_(std::move(on_long_wait)),
      gangs_(arena_->own(device), number_),
      reads_(device) {}

void LocalDevice::Leave(uint64_t order, Ending ending) {
  const std::optional<LeftUpTo> news = gangs_.Leave(order, ending);
  if (news && couriers_ != nullptr) couriers_->SendLeft({&*news, 1});
}

void LocalDevice::Skip(std::span<const std::shared_ptr<LocalDevice>> devices, uint64_t order) {
  std::vector<LeftUpTo> lefts;
  const Couriers* couriers = nullptr;
  for (const auto& device : devices) {
    if (device == nullptr) continue;
    device->gangs_.Enter(order);
    lefts.push_back(*device->gangs_.Leave(order, Ending::kEarly));
    couriers = device->couriers_.get();
  }
  if (couriers != nullptr) couriers->SendLeft(lefts);
}

void LocalDevice::FailLate(uint64_t order) {
  const LeftUpTo left = gangs_.FailLate(order);
  std::atomic_thread_fence(std::memory_order_release);
  // Even if another thread has set it, because that thread may not have sent it yet.
  if (couriers_ != nullptr) couriers_->SendLeft({&left, 1});
}

}  // namespace gangway::collective
