// Implementation of peer_devices.h.
#include "gangway/collective/execution/peer_devices.h"

#include <bitset>
#include <utility>

namespace gangway::collective {

PeerDevices::PeerDevices(std::vector<PeerDevice> by_position)
    : by_position_(std::move(by_position)) {
  std::bitset<kWorkersMax> here, far;
  for (const PeerDevice& device : by_position_) {
    if (device.peer == nullptr) continue;
    const uint32_t worker = device.peer->index();
    if (device.shares_memory()) {
      regions_of_host_.push_back(&device.region());
      here.set(worker);
    } else if (!far.test(worker)) {
      far.set(worker);
      far_peers_.push_back(device.peer);
    }
  }
  workers_of_host_ = here.count();
}

}  // namespace gangway::collective
