// Implementation of fleet.h.
#include "gangway/worker/core/fleet.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gangway::worker {

bool Fleet::BeginEpoch(uint64_t epoch) {
  if (epoch < epoch_) return false;
  epoch_ = epoch;
  return true;
}

void Fleet::Open(const wire::OpenDevices& open) {
  BeginEpoch(open.island_epoch());
  local_devices_.clear();
  for (int i = 0; i < open.devices_size() && i < device_count_; ++i) {
    local_devices_[DeviceId(open.devices(i))] = i;
  }
}

WorkerRef Fleet::UpdatePeer(wire::Worker& other) {
  if (!BeginEpoch(other.island_epoch())) return nullptr;
  const auto worker = std::make_shared<const wire::Worker>(std::move(other));
  for (const uint32_t device : worker->devices()) others_[DeviceId(device)] = worker;
  return worker;
}

LocalPositions Fleet::PositionsOf(const google::protobuf::RepeatedField<uint32_t>& devices) const {
  LocalPositions positions{.count = static_cast<size_t>(devices.size()), .local = {}};
  for (int i = 0; i < devices.size(); ++i) {
    auto entry = local_devices_.find(DeviceId(devices.Get(i)));
    if (entry != local_devices_.end())
      positions.local.push_back({static_cast<uint32_t>(i), entry->second});
  }
  return positions;
}

std::string Fleet::DeviceName(int local) const {
  for (const auto& [id, index] : local_devices_) {
    if (index == local) return absl::StrCat("device ", id);
  }
  return "another worker";
}

std::vector<WorkerRef> Fleet::MembersOn(const std::vector<DeviceId>& devices) const {
  std::vector<WorkerRef> members;
  for (const DeviceId device : devices) {
    WorkerRef member = WorkerOf(device);
    if (member != nullptr && (members.empty() || members.back() != member))
      members.push_back(std::move(member));
  }
  return members;
}

std::vector<WorkerRef> Fleet::SendersOn(const std::vector<DeviceId>& devices) const {
  std::vector<WorkerRef> senders;
  senders.reserve(devices.size());
  for (const DeviceId device : devices) {
    WorkerRef sender = WorkerOf(device);
    if (sender != nullptr && sender->incarnation() == 0) sender = nullptr;
    senders.push_back(std::move(sender));
  }
  return senders;
}

WorkerRef Fleet::WorkerOf(DeviceId device) const {
  const auto found = others_.find(device);
  return found == others_.end() ? nullptr : found->second;
}

}  // namespace gangway::worker
